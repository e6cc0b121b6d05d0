package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// script returns the path of the entry's own script or, if it has none, of the common one.
func (s subject) script(root string) string {
	own := s.id + ".sh"
	if _, err := os.Stat(filepath.Join(root, own)); err == nil {
		return own
	}
	return "reproduce.sh"
}

var scriptCase = regexp.MustCompile(`(?m)^([a-z]+)\)`)

// cases returns those of the script that the subject supports.
func (s subject) cases(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, s.script(root))) //nolint:gosec // a script of the repository
	if err != nil {
		return nil, err
	}
	var names []string
	for _, found := range scriptCase.FindAllStringSubmatch(string(text), -1) {
		if (found[1] != expiry || s.expires()) && (found[1] != replica || s.store.Needs != "") {
			names = append(names, found[1])
		}
	}
	return names, nil
}

// reproduceAll runs the cases against each subject and keeps their output in observed.txt.
func reproduceAll(ctx context.Context, root string, selected []subject, names []string) error {
	work, err := prepare(ctx, root, selected)
	if err != nil {
		return err
	}
	defer work.remove()
	seen, err := observed(root)
	if err != nil {
		return err
	}
	var failed []error
	for _, s := range selected {
		cases, err := s.cases(root)
		if err != nil {
			return err
		}
		for _, name := range cases {
			if len(names) > 0 && !slices.Contains(names, name) {
				continue
			}
			if output, err := work.reproduce(ctx, root, s, name); err == nil {
				seen[s.String()+" "+name] = output
			} else {
				failed = append(failed, fmt.Errorf("%s: %s: %w", s, name, err))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if err := keep(root, seen); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// observed returns the outputs of a subject and a case, such as "fiber/redis crash". Each has
// two runs, with an empty line between them.
func observed(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "observed.txt")) //nolint:gosec // a file of the repository
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	seen := map[string]string{}
	for part := range strings.SplitSeq("\n"+string(text), "\n== ") {
		if title, output, ok := strings.Cut(part, "\n"); ok && title != "" {
			seen[title] = strings.TrimSpace(output)
		}
	}
	return seen, nil
}

// keep writes the outputs in the form that observed reads.
func keep(root string, seen map[string]string) error {
	var parts []string
	for title, output := range seen {
		parts = append(parts, fmt.Sprintf("== %s\n%s\n", title, output))
	}
	slices.Sort(parts)
	return os.WriteFile(filepath.Join(root, "observed.txt"), []byte(strings.Join(parts, "\n")), 0o644) //nolint:gosec // a file of the repository
}

// reproduce runs a case twice, each time with a fresh server, store and provider.
func (w *workshop) reproduce(ctx context.Context, root string, s subject, name string) (string, error) {
	var runs []string
	for range 2 {
		output, err := w.runCase(ctx, root, s, name)
		if err != nil {
			return "", err
		}
		runs = append(runs, strings.TrimSpace(output))
	}
	text := strings.Join(runs, "\n\n")
	fmt.Printf("== %s %s\n%s\n", s, name, text)
	return text, nil
}

func (w *workshop) runCase(ctx context.Context, root string, s subject, name string) (_ string, err error) {
	lifetime := ""
	if name == expiry {
		lifetime = "1"
	}
	b, err := w.bench(ctx, s, lifetime, name == replica)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	cmd := exec.CommandContext(ctx, "sh", filepath.Join(root, s.script(root)), name) //nolint:gosec // a script of the repository
	cmd.Env = append(os.Environ(), b.scriptEnvironment()...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return "", b.explain(fmt.Errorf("%w\n%s", err, output))
	}
	return string(output), nil
}
