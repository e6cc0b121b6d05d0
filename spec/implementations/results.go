package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// result is what the page needs of the command's reports about a subject. results.yaml has
// those of all.
type result struct {
	Version   string    `yaml:"version"`
	Seed      uint64    `yaml:"seed"`
	Started   time.Time `yaml:"started"`
	Kills     int       `yaml:"kills"` // until the first violation
	Exercised []string  `yaml:"exercised,flow"`
	Anomalies []anomaly `yaml:"anomalies"`
	// Clauses has the state of each of shownClauses that was checked, and the message after a colon.
	Clauses map[string]string `yaml:"clauses"`
}

type anomaly struct {
	Kind     string   `json:"kind" yaml:"kind"`
	Scenario string   `json:"scenario" yaml:"scenario"`
	Clauses  []string `json:"clauses" yaml:"clauses,flow"`
	Title    string   `json:"title" yaml:"title"`
	Summary  string   `json:"summary" yaml:"summary"`
}

const (
	crash   = "crash"
	expiry  = "expiry"
	replica = "replica"
)

// shownClauses are those that the page shows also without an anomaly.
var shownClauses = []string{"IR-3", "IR-6", "IR-7", "IR-19", "IR-32"}

// readReport reads a report of the command.
func readReport(file string) (result, error) {
	var report struct {
		Version   string
		Seed      uint64
		Started   time.Time
		Exercised []struct{ Scenario, Text string }
		Anomalies []anomaly
		Matrix    []struct{ Cells map[string]string }
		Results   []struct{ Clause, State, Message string }
	}
	text, err := os.ReadFile(file) //nolint:gosec // a file of the workshop
	if err != nil {
		return result{}, err
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return result{}, err
	}
	r := result{Version: report.Version, Seed: report.Seed, Started: report.Started, Anomalies: report.Anomalies, Clauses: map[string]string{}}
	for _, row := range report.Matrix {
		for scenario, cell := range row.Cells {
			if cell != "" && !slices.Contains(r.Exercised, scenario) {
				r.Exercised = append(r.Exercised, scenario)
			}
		}
	}
	slices.Sort(r.Exercised)
	for _, c := range report.Exercised {
		if c.Scenario == crash {
			_, _ = fmt.Sscan(c.Text, &r.Kills) // such as "20 crashes"
		}
	}
	for _, c := range report.Results {
		if c.State != "not exercised" && slices.Contains(shownClauses, c.Clause) {
			r.Clauses[c.Clause] = strings.TrimSuffix(c.State+": "+c.Message, ": ")
		}
	}
	return r, nil
}

// add takes over what another pass has shown about its scenario.
func (r *result) add(other result, scenario string) {
	for _, a := range other.Anomalies {
		if a.Scenario == scenario {
			r.Anomalies = append(r.Anomalies, a)
		}
	}
	if slices.Contains(other.Exercised, scenario) {
		r.Exercised = append(r.Exercised, scenario)
	}
	if scenario != replica { // whose clause was checked with one process, too
		maps.Copy(r.Clauses, other.Clauses)
	}
	r.Kills += other.Kills
}

// of returns the state and the message of a clause, or two empty strings.
func (r *result) of(id string) (state, message string) {
	state, message, _ = strings.Cut(r.Clauses[id], ": ")
	return state, message
}

// leastKills is how many kills a server must survive before the page says that it is safe.
const leastKills = 20

// enough is an error if the server was killed without a violation, but too rarely.
func (r *result) enough() error {
	unsafe := slices.ContainsFunc(r.Anomalies, func(a anomaly) bool { return a.column() == crash })
	if slices.Contains(r.Exercised, crash) && !unsafe && r.Kills < leastKills {
		return fmt.Errorf("it survived %d kills, but a safe answer needs %d", r.Kills, leastKills)
	}
	return nil
}

// readResults reads results.yaml.
func readResults(root string) (map[string]result, error) {
	all := map[string]result{}
	text, err := os.ReadFile(filepath.Join(root, "results.yaml")) //nolint:gosec // a file of the repository
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return all, yaml.Unmarshal(text, &all)
}

// write replaces the result of a subject in results.yaml.
func (r result) write(root string, s subject) error {
	all, err := readResults(root)
	if err != nil {
		return err
	}
	all[s.String()] = r
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "results.yaml"), text, 0o644) //nolint:gosec // a file of the repository
}
