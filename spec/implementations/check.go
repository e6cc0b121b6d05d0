package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// entryLimit ends a run that hangs. A run takes about a minute.
const entryLimit = 10 * time.Minute

// check runs the command against a subject and writes its report to results/.
func (w *workshop) check(ctx context.Context, root string, s subject) error {
	started := time.Now()
	report, err := w.conform(ctx, s, "")
	if err != nil {
		return err
	}
	results := filepath.Join(root, "results")
	if err := os.MkdirAll(results, 0o755); err != nil { //nolint:gosec // a folder of the repository
		return err
	}
	if err := os.Rename(report, filepath.Join(results, s.fileName()+".json")); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", s, time.Since(started).Round(time.Second))
	return nil
}

// conform returns the file of the command's JSON report.
func (w *workshop) conform(ctx context.Context, s subject, lifetime string, flags ...string) (_ string, err error) {
	b, err := w.bench(ctx, s, lifetime)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	profile, err := w.profile(s)
	if err != nil {
		return "", err
	}
	report := filepath.Join(w.folder, s.fileName()+".json")
	ctx, cancel := context.WithTimeout(ctx, entryLimit)
	defer cancel()
	args := append([]string{"-profile", profile, "-format", "json", "-output", report}, flags...)
	cmd := exec.CommandContext(ctx, w.conformance, args...) //nolint:gosec // its own program
	cmd.Env = append(os.Environ(), b.scriptEnvironment()...)
	cmd.Dir = w.folder
	output, err := cmd.CombinedOutput()
	// Status 1: an anomaly was found.
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		return "", b.explain(fmt.Errorf("%s: %w\n%s", filepath.Base(w.conformance), err, output))
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", s, strings.TrimSpace(string(output)))
	return report, nil
}

// profile writes the profile file of a subject: profile.yaml with the members of the entry's
// own file. One with an operation of its own is used as it is.
func (w *workshop) profile(s subject) (string, error) {
	merged := map[string]any{}
	own, err := readYAML(filepath.Join(w.of(s), "profile.yaml"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if own["operation"] == nil {
		if merged, err = readYAML(filepath.Join(w.folder, "implementations", "profile.yaml")); err != nil {
			return "", err
		}
	}
	merge(merged, own)
	text, err := yaml.Marshal(merged)
	if err != nil {
		return "", err
	}
	file := filepath.Join(w.folder, s.fileName()+".yaml")
	return file, os.WriteFile(file, text, 0o600)
}

func readYAML(file string) (map[string]any, error) {
	text, err := os.ReadFile(file) //nolint:gosec // a file of the workshop
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	return values, yaml.Unmarshal(text, &values)
}

// merge sets the members of own in base.
func merge(base, own map[string]any) {
	for name, value := range own {
		inner, isMap := value.(map[string]any)
		if existing, ok := base[name].(map[string]any); ok && isMap {
			merge(existing, inner)
			continue
		}
		base[name] = value
	}
}
