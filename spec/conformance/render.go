package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// failed reports whether a MUST clause fails.
func (r report) failed() bool { return r.reached() < r.Level }

// reached returns the highest level whose MUST clauses, and those of all lower levels, do
// not fail.
func (r report) reached() int {
	reached := r.Level
	for _, res := range r.Results {
		if res.Level > 0 && res.State == fail && res.Keyword == must {
			reached = min(reached, res.Level-1)
		}
	}
	return reached
}

func (r report) count(matches func(result) bool) int {
	n := 0
	for _, res := range r.Results {
		if matches(res) {
			n++
		}
	}
	return n
}

func (r report) summary() string {
	passed := r.count(func(res result) bool { return res.State == pass })
	failedMust := r.count(func(res result) bool { return res.State == fail && res.Keyword == must })
	failedOther := r.count(func(res result) bool { return res.State == fail && res.Keyword != must })
	open := r.count(func(res result) bool { return res.State == skipped && res.Level > 0 })
	hidden := r.count(func(res result) bool { return res.Level == 0 })
	lines := []string{fmt.Sprintf("%d pass, %d MUST and %d SHOULD or MAY fail, %d not checked, %d not observable. Seed %d.",
		passed, failedMust, failedOther, open, hidden, r.Seed)}
	switch reached := r.reached(); {
	case r.Partial:
		lines = append(lines, "Only the selected clauses were checked.")
	case reached == 0:
		lines = append(lines, "The server conforms at no level.")
	case open > 0:
		lines = append(lines, fmt.Sprintf("The server conforms at level %d, as far as it was checked.", reached))
	default:
		lines = append(lines, fmt.Sprintf("The server conforms at level %d.", reached))
	}
	return strings.Join(lines, "\n")
}

func (r report) write(format string, w io.Writer) error {
	r.Reached = r.reached()
	switch format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	case "junit":
		return r.writeJUnit(w)
	default:
		_, err := io.WriteString(w, r.text())
		return err
	}
}

func (r report) text() string {
	var text strings.Builder
	for _, res := range r.Results {
		level := "-"
		if res.Level > 0 {
			level = strconv.Itoa(res.Level)
		}
		fmt.Fprintf(&text, "%-5s  %s  %-6s  %-11s  %s\n", res.Clause, level, res.Keyword, res.State, res.Title)
		if res.Message != "" {
			fmt.Fprintf(&text, "       %s\n", res.Message)
		}
		for _, exchange := range res.Exchanges {
			for _, line := range exchange {
				fmt.Fprintf(&text, "         %s\n", line)
			}
		}
	}
	return text.String() + "\n" + r.summary() + "\n"
}

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Seconds string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// writeJUnit reports a SHOULD or MAY clause that fails as skipped.
func (r report) writeJUnit(w io.Writer) error {
	suite := junitSuite{Name: "idempotent requests"}
	for _, res := range r.Results {
		c := junitCase{
			Class: "level " + strconv.Itoa(res.Level), Name: res.Clause + " " + res.Title,
			Seconds: strconv.FormatFloat(res.Seconds, 'f', 3, 64),
		}
		var lines []string
		for _, exchange := range res.Exchanges {
			lines = append(lines, exchange...)
		}
		message := &junitMessage{res.Message, strings.Join(lines, "\n")}
		switch {
		case res.State == fail && res.Keyword == must:
			c.Failure = message
			suite.Failures++
		case res.State != pass:
			c.Skipped = message
			suite.Skipped++
		}
		suite.Tests++
		suite.Cases = append(suite.Cases, c)
	}
	text, err := xml.MarshalIndent(junitSuites{Suites: []junitSuite{suite}}, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append([]byte(xml.Header), append(text, '\n')...))
	return err
}
