package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// implementation is an entry of entries.yaml. README.md explains each member.
type implementation struct {
	Name     string `yaml:"name"`
	Version  string `yaml:"version"`
	Language string `yaml:"language"`
	Source   string `yaml:"source"`
	Commit   string `yaml:"commit"`
	// Newer is a sentence about newer versions that are known and were not tested, or empty.
	Newer    string    `yaml:"newer"`
	About    string    `yaml:"about"`
	Setup    []string  `yaml:"setup"`
	Promises []promise `yaml:"promises"`
	// Documentation is whose the promises are, or empty: its own.
	Documentation string   `yaml:"documentation"`
	Stores        []store  `yaml:"stores"`
	Install       []string `yaml:"install"`
	Start         string   `yaml:"start"`
	Expires       bool     `yaml:"expires"`
	Notes         []note   `yaml:"notes"`
	// Profile differs from profile.yaml, or replaces it if it has an operation.
	Profile map[string]any `yaml:"profile"`

	id string // its name in entries.yaml
}

// promise is a sentence of the documentation.
type promise struct {
	Says  string `yaml:"says"`
	Where string `yaml:"where"`
}

// store is where the keys are. Needs is the service that the runner starts for it.
type store struct {
	Name    string `yaml:"name"`
	Default bool   `yaml:"default"`
	Needs   string `yaml:"needs"`
	About   string `yaml:"about"`
	Keeps   bool   `yaml:"keeps"` // its keys do not expire
}

// note explains the results in a scenario.
type note struct {
	Stores    []string `yaml:"stores"` // empty: all
	Scenario  string   `yaml:"scenario"`
	Text      string   `yaml:"text"`
	Reproduce string   `yaml:"reproduce"` // another case of the script
}

// subject is an implementation with one of its stores.
type subject struct {
	*implementation
	store store
}

func (s subject) expires() bool { return s.Expires && !s.store.Keeps }

func (s subject) String() string { return s.id + "/" + s.store.Name }

// load reads the entries, sorted by their names.
func load(root string) ([]*implementation, error) {
	text, err := os.ReadFile(filepath.Join(root, "entries.yaml")) //nolint:gosec // a file of the repository
	if err != nil {
		return nil, err
	}
	entries := map[string]*implementation{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&entries); err != nil {
		return nil, fmt.Errorf("entries.yaml: %w", err)
	}
	var all []*implementation
	var faults []error
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		one := entries[id]
		one.id = id
		for _, fault := range one.faults() {
			faults = append(faults, fmt.Errorf("entries.yaml: %s: %s", id, fault))
		}
		all = append(all, one)
	}
	return all, errors.Join(faults...)
}

func (i *implementation) faults() []string {
	var faults []string
	for member, value := range map[string]string{"name": i.Name, "version": i.Version, "language": i.Language, "about": i.About, "start": i.Start} {
		if value == "" {
			faults = append(faults, member+" is required")
		}
	}
	if len(i.Stores) == 0 {
		faults = append(faults, "stores must have an item")
	}
	for _, s := range i.Stores {
		if s.Name == "" || !slices.Contains([]string{"", "redis", "postgres"}, s.Needs) {
			faults = append(faults, fmt.Sprintf("store %q: it must have a name, and needs can be redis or postgres", s.Name))
		}
	}
	slices.Sort(faults)
	return faults
}

// choose returns the subjects of the names: "entry" or "entry/store".
func choose(all []*implementation, names []string) ([]subject, error) {
	var selected []subject
	used := map[string]bool{}
	for _, one := range all {
		for _, s := range one.Stores {
			name := one.id + "/" + s.Name
			if len(names) == 0 || slices.Contains(names, one.id) || slices.Contains(names, name) {
				selected = append(selected, subject{one, s})
				used[one.id], used[name] = true, true
			}
		}
	}
	for _, name := range names {
		if !used[name] {
			return nil, fmt.Errorf("there is no implementation %q", name)
		}
	}
	if len(selected) == 0 {
		return nil, errors.New("there is no implementation")
	}
	return selected, nil
}

// fileName is the name without a slash.
func (s subject) fileName() string { return strings.ReplaceAll(s.String(), "/", ".") }
