package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// expiryScript needs a server whose keys live for a second.
const expiryScript = "expiry"

// reproduceAll runs the scripts against each subject and keeps their output in its folder.
func reproduceAll(ctx context.Context, root string, selected []subject, names []string) error {
	work, err := prepare(ctx, root, selected)
	if err != nil {
		return err
	}
	defer work.remove()
	var failed []error
	for _, s := range selected {
		scripts, err := s.scripts(root)
		if err != nil {
			return err
		}
		for _, script := range scripts {
			name := strings.TrimSuffix(filepath.Base(script), ".sh")
			if len(names) > 0 && !slices.Contains(names, name) || name == expiryScript && !s.expires() {
				continue
			}
			if err := work.reproduce(ctx, root, s, script, name); err != nil {
				failed = append(failed, fmt.Errorf("%s: %s: %w", s, name, err))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return errors.Join(failed...)
}

// scripts returns the entry's own scripts or, if it has none, the common ones.
func (s subject) scripts(root string) ([]string, error) {
	own, err := filepath.Glob(filepath.Join(root, s.folder, "reproduce", "*.sh"))
	if err != nil || len(own) > 0 {
		return own, err
	}
	return filepath.Glob(filepath.Join(root, "reproduce", "*.sh"))
}

// reproduce runs a script twice, each time with a fresh server, store and provider.
func (w *workshop) reproduce(ctx context.Context, root string, s subject, script, name string) error {
	var runs []string
	for range 2 {
		output, err := w.runScript(ctx, s, script, name)
		if err != nil {
			return err
		}
		runs = append(runs, output)
	}
	text := strings.Join(runs, "\n")
	fmt.Printf("== %s %s\n%s", s, name, text)
	file := filepath.Join(root, s.folder, "observed", s.store.Name+"."+name+".txt")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // a folder of the repository
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // a file of the repository
}

func (w *workshop) runScript(ctx context.Context, s subject, script, name string) (_ string, err error) {
	lifetime := ""
	if name == expiryScript {
		lifetime = "1"
	}
	b, err := w.bench(ctx, s, lifetime)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	cmd := exec.CommandContext(ctx, "sh", script) //nolint:gosec // a script of the repository
	cmd.Env = append(os.Environ(), b.scriptEnvironment()...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return "", b.explain(fmt.Errorf("%w\n%s", err, output))
	}
	return string(output), nil
}
