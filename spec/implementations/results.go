package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// result is a file of results/: what the pages need of the command's report.
type result struct {
	Version      string     `json:"version"`
	Seed         uint64     `json:"seed"`
	Started      time.Time  `json:"started"`
	Seconds      float64    `json:"seconds"`
	Dialect      string     `json:"dialect,omitempty"`
	Exercised    []covering `json:"exercised"`
	NotExercised []gap      `json:"not_exercised"`
	Anomalies    []anomaly  `json:"anomalies"`
	Matrix       []row      `json:"matrix"`
	Results      []clause   `json:"results"`
}

// covering is what was done in a scenario, such as "20 crashes".
type covering struct {
	Scenario string `json:"scenario"`
	Text     string `json:"text"`
}

type gap struct {
	Scenario string `json:"scenario"`
	Reason   string `json:"reason"`
}

type anomaly struct {
	Class    string   `json:"class"`
	Kind     string   `json:"kind"`
	Scenario string   `json:"scenario"`
	Clauses  []string `json:"clauses"`
	Title    string   `json:"title"`
	Summary  string   `json:"summary"`
}

type row struct {
	Effect string            `json:"effect"`
	Cells  map[string]string `json:"cells"`
}

type clause struct {
	Clause  string `json:"clause"`
	Level   int    `json:"level"`
	Class   string `json:"class"`
	Keyword string `json:"keyword"`
	Title   string `json:"title"`
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

const (
	crash  = "crash"
	expiry = "expiry"
)

// add takes over what another pass has shown about its scenario.
func (r *result) add(other result, scenario string) {
	for _, a := range other.Anomalies {
		if a.Scenario == scenario {
			r.Anomalies = append(r.Anomalies, a)
		}
	}
	for i, one := range other.Matrix {
		if cell, ok := one.Cells[scenario]; ok && i < len(r.Matrix) {
			r.Matrix[i].Cells[scenario] = cell
		}
	}
	for _, c := range other.Results {
		if i := slices.IndexFunc(r.Results, func(own clause) bool { return own.Clause == c.Clause }); i >= 0 && c.Level > 0 {
			r.Results[i] = c
		}
	}
	for _, c := range other.Exercised {
		if c.Scenario == scenario {
			r.Exercised = append(r.Exercised, c)
		}
	}
	r.NotExercised = slices.DeleteFunc(r.NotExercised, func(g gap) bool { return g.Scenario == scenario })
	r.Seconds += other.Seconds
}

func (r *result) of(id string) clause {
	i := slices.IndexFunc(r.Results, func(c clause) bool { return c.Clause == id })
	if i < 0 {
		return clause{}
	}
	return r.Results[i]
}

// leastKills is how many kills a server must survive before the page says that it is safe.
const leastKills = 20

// kills is how often the server was killed: until the first violation.
func (r *result) kills() int {
	kills := 0
	for _, c := range r.Exercised {
		if c.Scenario == crash {
			_, _ = fmt.Sscan(c.Text, &kills) // such as "20 crashes"
		}
	}
	return kills
}

// enough is an error if the server was killed without a violation, but too rarely.
func (r *result) enough() error {
	killed := slices.ContainsFunc(r.Exercised, func(c covering) bool { return c.Scenario == crash })
	unsafe := slices.ContainsFunc(r.Anomalies, func(a anomaly) bool { return a.column() == crash })
	if killed && !unsafe && r.kills() < leastKills {
		return fmt.Errorf("it survived %d kills, but a safe answer needs %d", r.kills(), leastKills)
	}
	return nil
}

func resultFile(root string, s subject) string {
	return filepath.Join(root, "results", s.fileName()+".json")
}

func readResult(file string) (result, error) {
	var r result
	text, err := os.ReadFile(file) //nolint:gosec // a file of the repository or the workshop
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

func (r result) write(file string) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // a folder of the repository
		return err
	}
	output, err := os.Create(file) //nolint:gosec // a file of the repository
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, output.Close()) }()
	encoder := json.NewEncoder(output)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
