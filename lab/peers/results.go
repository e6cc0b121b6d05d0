package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
)

// results is the content of results.json. A run replaces what it measures again. The windows
// of one number of clients are always from one run.
type results struct {
	Windows []window
	Sizes   []size
	Faults  []outcome
}

func (r *results) read(path string) error {
	text, err := os.ReadFile(path) //nolint:gosec // an argument of this program
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, json.Unmarshal(text, r))
}

func (r *results) write(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // not confidential
}

func (r *results) addSize(s size) {
	r.Sizes = replace(r.Sizes, s, func(o size) bool { return o.Peer == s.Peer })
}

func (r *results) addFaults(f outcome) {
	r.Faults = replace(r.Faults, f, func(o outcome) bool { return o.Peer == f.Peer && (o.Kills > 0) == (f.Kills > 0) })
}

func replace[T any](all []T, next T, same func(T) bool) []T {
	return append(slices.DeleteFunc(all, same), next)
}
