package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// entryLimit ends a run that hangs. A run takes about a minute.
const entryLimit = 10 * time.Minute

// The exit statuses of the command with a report.
const (
	unsafe       = 1
	otherForm    = 3
	notExercised = 4
	clauseFails  = 5
)

// pass is one run of the command, with its own server, store and provider.
type pass struct {
	scenario string // the only one that it shows, or ""
	lifetime string
	clauses  string // or "": all
	without  []string
	expire   string
	second   bool // two processes of the server share the store
}

// passes separates kills and expiry from the rest: a kill deletes the keys of a memory store,
// and a workflow engine continues after it, which would be seen in other scenarios too.
func (s subject) passes(profile map[string]any) []pass {
	all := []pass{{without: []string{"kill", "start"}}}
	if commands, ok := profile["commands"].(map[string]any); ok && commands["kill"] != nil {
		all = append(all, pass{scenario: crash, clauses: "IR-17,IR-33"})
	}
	if s.expires() {
		all = append(all, pass{scenario: expiry, clauses: "IR-34", lifetime: "1", expire: "sleep 3"})
	}
	if s.store.Needs != "" {
		all = append(all, pass{scenario: replica, clauses: "IR-16", without: []string{"kill", "start"}, second: true})
	}
	return all
}

// check runs the command against a subject and writes its result.
func (w *workshop) check(ctx context.Context, root string, s subject) error {
	started := time.Now()
	profile, err := w.profile(s)
	if err != nil {
		return err
	}
	var all result
	for i, p := range s.passes(profile) {
		r, err := w.conform(ctx, s, p)
		if err != nil {
			return err
		}
		if i == 0 {
			all = r
			continue
		}
		all.add(r, p.scenario)
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", s, time.Since(started).Round(time.Second))
	for _, a := range all.Anomalies {
		fmt.Fprintf(os.Stderr, "  %s: %s (%s)\n", a.Title, a.Summary, strings.Join(a.Clauses, ", "))
	}
	if err := all.enough(); err != nil {
		return err
	}
	return all.write(root, s)
}

// conform returns the command's report.
func (w *workshop) conform(ctx context.Context, s subject, p pass) (_ result, err error) {
	b, err := w.bench(ctx, s, p.lifetime, p.second)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	profile, err := w.writeProfile(s, p)
	if err != nil {
		return result{}, err
	}
	report := filepath.Join(w.folder, s.fileName()+".json")
	ctx, cancel := context.WithTimeout(ctx, entryLimit)
	defer cancel()
	args := []string{"-profile", profile, "-report", "json=" + report}
	if p.clauses != "" {
		args = append(args, "-clause", p.clauses)
	}
	cmd := exec.CommandContext(ctx, w.conformance, args...) //nolint:gosec // its own program
	cmd.Env = append(os.Environ(), b.scriptEnvironment()...)
	cmd.Dir = w.folder
	output, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); err != nil && !slices.Contains([]int{unsafe, otherForm, notExercised, clauseFails}, code) {
		return result{}, b.explain(fmt.Errorf("%s: %w\n%s", filepath.Base(w.conformance), err, output))
	}
	return readReport(report)
}

// profile returns the profile file of a subject: the common one with the members of the
// entry's own. One with an operation of its own is used as it is.
func (w *workshop) profile(s subject) (map[string]any, error) {
	merged := map[string]any{}
	if s.Profile["operation"] == nil {
		text, err := os.ReadFile(filepath.Join(w.folder, "implementations", "profile.yaml"))
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(text, &merged); err != nil {
			return nil, err
		}
	}
	merge(merged, s.Profile)
	return merged, nil
}

func (w *workshop) writeProfile(s subject, p pass) (string, error) {
	profile, err := w.profile(s)
	if err != nil {
		return "", err
	}
	if p.second {
		profile["urls"] = []string{"${SECOND_URL}"}
	}
	if commands, ok := profile["commands"].(map[string]any); ok {
		maps.DeleteFunc(commands, func(name string, _ any) bool { return slices.Contains(p.without, name) })
		if p.expire != "" {
			commands["expire"] = p.expire
		}
	}
	text, err := yaml.Marshal(profile)
	if err != nil {
		return "", err
	}
	file := filepath.Join(w.folder, s.fileName()+".yaml")
	return file, os.WriteFile(file, text, 0o600)
}

// merge sets the members of own in base, which shares no map with own.
func merge(base, own map[string]any) {
	for name, value := range own {
		inner, isMap := value.(map[string]any)
		if !isMap {
			base[name] = value
			continue
		}
		existing, ok := base[name].(map[string]any)
		if !ok {
			existing = map[string]any{}
			base[name] = existing
		}
		merge(existing, inner)
	}
}
