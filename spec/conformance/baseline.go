package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// expectation is a line of a baseline: a class and what is known to fail, such as
// "form IR-13" or "safety IR-16".
func (r report) expectations() []string {
	var lines []string
	for _, a := range r.Anomalies {
		for _, clause := range a.Clauses {
			lines = append(lines, string(a.Class)+" "+clause)
		}
	}
	for _, res := range r.Results {
		if res.State == fail && !slices.ContainsFunc(lines, func(line string) bool { return strings.HasSuffix(line, " "+res.Clause) }) {
			lines = append(lines, string(form)+" "+res.Clause)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func (r report) writeBaseline(w io.Writer) error {
	_, err := fmt.Fprintf(w, "# Known failures of %s at %s. An unexpected pass fails too.\n%s", r.Operation, r.URL, lines(r.expectations()))
	return err
}

func lines(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, "\n") + "\n"
}

func readBaseline(r io.Reader) ([]string, error) {
	var known []string
	text := bufio.NewScanner(r)
	for text.Scan() {
		line, _, _ := strings.Cut(text.Text(), "#")
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			known = append(known, line)
		}
	}
	return known, text.Err()
}

// against returns what fails unexpectedly, and what is expected to fail but passes. A clause
// that was not exercised is neither.
func (r report) against(known []string) (failures, passes []string) {
	now := r.expectations()
	for _, line := range now {
		if !slices.Contains(known, line) {
			failures = append(failures, line)
		}
	}
	for _, line := range known {
		_, clause, _ := strings.Cut(line, " ")
		exercised := slices.ContainsFunc(r.Results, func(res result) bool { return res.Clause == clause && res.State != skipped })
		if exercised && !slices.Contains(now, line) {
			passes = append(passes, line)
		}
	}
	return failures, passes
}
