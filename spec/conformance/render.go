package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
)

// formats are those of -report.
var formats = map[string]func(report, io.Writer) error{
	"text": report.writeText, "json": report.writeJSON, "junit": report.writeJUnit, "html": report.writeHTML, "baseline": report.writeBaseline,
}

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

// differing returns the number of MUST clauses that differ in form.
func (r report) differing() int {
	return r.count(func(res result) bool { return res.State == fail && res.Keyword == must && res.Class == form })
}

// formVerdict is such as `dialect "400, no retry member", 2 MUST differ`.
func (r report) formVerdict() string {
	var parts []string
	if r.Dialect != "" {
		parts = append(parts, fmt.Sprintf("dialect %q", r.Dialect))
	}
	judged := cmp.Or(r.Against, "profile "+version)
	if n := r.differing(); n > 0 {
		parts = append(parts, fmt.Sprintf("%s: %d MUST differ (counts only with -strict)", judged, n))
	} else if r.Dialect == "" {
		parts = append(parts, judged+": no MUST differs")
	}
	return strings.Join(parts, "; ")
}

// summary has the numbers of all clauses.
func (r report) summary() string {
	passed := r.count(func(res result) bool { return res.State == pass || res.State == dialectal || res.State == declared })
	failed := r.count(func(res result) bool { return res.State == fail && res.Keyword == must })
	other := r.count(func(res result) bool { return res.State == fail && res.Keyword != must })
	open := r.count(func(res result) bool { return res.State == skipped && res.Level > 0 })
	hidden := r.count(func(res result) bool { return res.Level == 0 })
	lines := []string{fmt.Sprintf("%d pass, %d MUST and %d SHOULD or MAY fail, %d not exercised, %d not observable. Seed %d.",
		passed, failed, other, open, hidden, r.Seed)}
	switch {
	case r.Ended != "":
		lines = append(lines, "The run ended early, so the level is unknown.")
	case r.Partial:
		lines = append(lines, "Only the selected clauses were checked.")
	case r.Reached == 0:
		lines = append(lines, "The server conforms at no level.")
	case open > 0:
		lines = append(lines, fmt.Sprintf("The server conforms at level %d, as far as it was checked.", r.Reached))
	default:
		lines = append(lines, fmt.Sprintf("The server conforms at level %d.", r.Reached))
	}
	return strings.Join(lines, "\n")
}

func (r report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func (r report) writeText(w io.Writer) error {
	_, err := io.WriteString(w, r.text())
	return err
}

func (r report) text() string {
	var text strings.Builder
	head := fmt.Sprintf("conformance %s · %s · %s · seed %d · %.0f s · %s", r.Version, r.URL, r.Operation, r.Seed, r.Seconds, r.sent())
	if r.Safety == noViolation && r.Liveness == noViolation && r.Ended == "" {
		fmt.Fprintf(&text, "SAFETY %s (%s) · FORM %s\n%s\n", noViolation, r.coverage(), r.formVerdict(), head)
	} else {
		fmt.Fprintf(&text, "%s\n\nSAFETY    %s\nLIVENESS  %s\nFORM      %s\n", head, r.verdictLine(safety, r.Safety), r.verdictLine(liveness, r.Liveness), r.formVerdict())
	}
	text.WriteString("\n")
	if r.Ended != "" {
		fmt.Fprintf(&text, "! The run ended early: %s\n", r.Ended)
	}
	for _, g := range r.gaps() {
		fmt.Fprintf(&text, "! %s not exercised: %s\n", strings.ToUpper(string(g.Scenario)), g.Reason)
	}
	if r.Omitted != "" {
		fmt.Fprintf(&text, "! %s\n", r.Omitted)
	}
	if r.Foreign != "" {
		fmt.Fprintf(&text, "! The account has other traffic: %s (none of ours)\n", r.Foreign)
	}
	for _, a := range r.Anomalies {
		text.WriteString(a.text())
	}
	text.WriteString(r.matrixText())
	text.WriteString(r.differences())
	text.WriteString(r.clauseTable())
	return text.String() + "\n" + r.summary() + "\n"
}

// sent is such as "410 requests, 170 keys, 150 executions".
func (r report) sent() string {
	text := plural(r.Requests, "request") + ", " + plural(r.Keys, "key")
	if r.Executions > 0 {
		text += ", " + plural(r.Executions, "execution")
	}
	return text
}

// gaps has one line for all scenarios that no check has reached for the same reason.
func (r report) gaps() []gap {
	var gaps []gap
	var unreached []string
	reason := ""
	for _, g := range r.NotExercised {
		if g.Reason == unselectedReason || g.Reason == endedReason {
			unreached, reason = append(unreached, string(g.Scenario)), g.Reason
			continue
		}
		gaps = append(gaps, g)
	}
	if len(unreached) > 0 {
		gaps = append(gaps, gap{scenario(strings.Join(unreached, ", ")), reason})
	}
	return gaps
}

// exercised lists what was exercised, of some scenarios or of all.
func (r report) exercised(only ...scenario) string {
	var parts []string
	for _, c := range r.Exercised {
		if len(only) == 0 || slices.Contains(only, c.Scenario) {
			parts = append(parts, c.Text)
		}
	}
	return strings.Join(parts, ", ")
}

// coverage is such as "repeat, race, 3 crashes; not exercised: expiry; not covered: a second
// process (urls)".
func (r report) coverage() string {
	text := r.exercised()
	var missing []string
	for _, g := range r.NotExercised {
		missing = append(missing, string(g.Scenario))
	}
	if len(missing) > 0 {
		text += "; not exercised: " + strings.Join(missing, ", ")
	}
	if len(r.Uncovered) > 0 {
		text += "; not covered: " + strings.Join(r.Uncovered, ", ")
	}
	return text
}

func (r report) verdictLine(c class, v verdict) string {
	n := 0
	for _, a := range r.Anomalies {
		if a.Class == c {
			n++
		}
	}
	covered := r.coverage()
	if c == liveness {
		covered = cmp.Or(r.exercised(crashed, paused, storeLost, outage), "no crash and no outage was exercised")
	}
	differ := strings.Join(r.differ(c), ", ")
	var text string
	switch v {
	case notJudged:
		text = "NOT JUDGED: the account has other traffic"
	case noViolation:
		if r.Ended != "" {
			return fmt.Sprintf("%s until the run ended early (%s)", noViolation, covered)
		}
		return fmt.Sprintf("%s (%s)", noViolation, covered)
	case clausesDiffer:
		return fmt.Sprintf("CLAUSES DIFFER: %s (exit %d); no other violation found (%s)", differ, exitDiffers, covered)
	default:
		text = fmt.Sprintf("VIOLATED: %s (exit %d)", anomalies(n), exitViolated)
		if c == safety {
			text = fmt.Sprintf("UNSAFE: %s (exit %d)", anomalies(n), exitViolated)
		}
	}
	if differ != "" {
		text += "; clauses differ, too: " + differ
	}
	return text
}

func anomalies(n int) string {
	if n == 1 {
		return "1 anomaly"
	}
	return strconv.Itoa(n) + " anomalies"
}

func (a anomaly) text() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%d %s   %s", a.Number, a.Title, strings.Join(a.Clauses, " "))
	if a.Count > 1 {
		fmt.Fprintf(&text, "   (seen %d times)", a.Count)
	}
	fmt.Fprintf(&text, "\n  %s\n", a.Summary)
	for _, line := range a.Witness {
		fmt.Fprintf(&text, "    %s\n", line)
	}
	fmt.Fprintf(&text, "  replay: %s\n", a.Replay)
	fmt.Fprintf(&text, "  cause:  usually %s\n", a.Cause)
	if a.Curl != "" {
		fmt.Fprintf(&text, "  by hand, in sh (other keys for each try):\n")
		for line := range strings.Lines(a.Curl) {
			fmt.Fprintf(&text, "    %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	return text.String()
}

// columns are the scenarios that the matrix shows.
func (r report) columns() []scenario {
	var all []scenario
	for _, q := range questions() {
		all = append(all, q.scenario)
	}
	return all
}

func (r report) cells(row matrixRow) []string {
	var cells []string
	for _, s := range r.columns() {
		cells = append(cells, cmp.Or(row.Cells[s], "-"))
	}
	return cells
}

func (r report) matrixText() string {
	if len(r.Matrix) == 0 {
		return ""
	}
	width := 8
	for _, row := range r.Matrix {
		width = max(width, len(row.Effect)+2)
	}
	text := "\n"
	line := func(name string, cells []string) {
		one := fmt.Sprintf("%-*s", width, name)
		for _, cell := range cells {
			one += fmt.Sprintf("%-8s", cell)
		}
		text += strings.TrimRight(one, " ") + "\n"
	}
	var head []string
	for _, s := range r.columns() {
		head = append(head, string(s))
	}
	line("", head)
	for _, row := range r.Matrix {
		line(row.Effect, r.cells(row))
	}
	return text
}

// difference is a cause of failures, with its clauses.
type difference struct {
	Cause   string
	Clauses []string
}

// grouped returns the differences of form by cause, the most frequent first.
func (r report) grouped() []difference {
	var all []difference
	for _, res := range r.Results {
		if res.State != fail || res.Cause == "" || res.Class != form {
			continue
		}
		i := slices.IndexFunc(all, func(d difference) bool { return d.Cause == res.Cause })
		if i < 0 {
			all = append(all, difference{Cause: res.Cause})
			i = len(all) - 1
		}
		all[i].Clauses = append(all[i].Clauses, res.Clause)
	}
	slices.SortStableFunc(all, func(a, b difference) int { return len(b.Clauses) - len(a.Clauses) })
	return all
}

func (r report) differences() string {
	var text strings.Builder
	for _, d := range r.grouped() {
		fmt.Fprintf(&text, "  %s: %s\n", d.Cause, strings.Join(d.Clauses, " "))
	}
	if text.Len() == 0 {
		return ""
	}
	return "\nFORM, by cause (a member of dialect declares a difference)\n" + text.String()
}

// link is the address of a clause in the profile.
func link(clause string) string {
	return "spec/idempotent-requests.md#" + strings.ToLower(clause)
}

func (r report) clauseTable() string {
	var text strings.Builder
	text.WriteString("\n")
	for _, res := range r.Results {
		level := "-"
		if res.Level > 0 {
			level = strconv.Itoa(res.Level)
		}
		fmt.Fprintf(&text, "%-5s  %s  %-8s  %-6s  %-13s  %s\n", res.Clause, level, res.Class, res.Keyword, res.State, res.Title)
		for line := range strings.Lines(res.Message) {
			fmt.Fprintf(&text, "       %s\n", strings.TrimSuffix(line, "\n"))
		}
		if res.State == pass && res.Covered != "" {
			fmt.Fprintf(&text, "       covers %s\n", res.Covered)
		}
		if res.State == fail {
			fmt.Fprintf(&text, "       %s\n", link(res.Clause))
		}
		for _, exchange := range res.Exchanges {
			for _, line := range exchange {
				fmt.Fprintf(&text, "         %s\n", line)
			}
		}
	}
	return text.String()
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
	Seconds string        `xml:"time,attr,omitempty"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (s *junitSuite) add(c junitCase) {
	s.Tests++
	if c.Failure != nil {
		s.Failures++
	}
	if c.Skipped != nil {
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

// writeJUnit has the questions of safety and the violations of liveness in suites of their
// own. In the suite of the clauses, a difference of form is skipped, so that it makes no build red.
func (r report) writeJUnit(w io.Writer) error {
	suites := junitSuites{Suites: []junitSuite{r.junitSafety(), r.junitLiveness(), r.junitForm()}}
	text, err := xml.MarshalIndent(suites, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append([]byte(xml.Header), append(text, '\n')...))
	return err
}

func (r report) junitSafety() junitSuite {
	suite := junitSuite{Name: "safety"}
	reasons := make(map[scenario]string)
	for _, g := range r.NotExercised {
		reasons[g.Scenario] = g.Reason
	}
	for _, q := range questions() {
		c := junitCase{Class: "safety", Name: "executed at most once " + q.text}
		if reason, missing := reasons[q.scenario]; missing {
			c.Skipped = &junitMessage{Message: "not exercised: " + reason}
		}
		if r.Safety == notJudged {
			c.Failure = &junitMessage{Message: "not judged: the account has other traffic", Text: r.Foreign}
		}
		for _, a := range r.Anomalies {
			if a.Class == safety && a.Scenario == q.scenario {
				c.Failure = &junitMessage{Message: a.Title + ": " + a.Summary, Text: a.text()}
				break
			}
		}
		suite.add(c)
	}
	return suite
}

func (r report) junitLiveness() junitSuite {
	suite := junitSuite{Name: "liveness"}
	c := junitCase{Class: "liveness", Name: "each request gets its final response"}
	for _, a := range r.Anomalies {
		if a.Class == liveness {
			c.Failure = &junitMessage{Message: a.Title + ": " + a.Summary, Text: a.text()}
			break
		}
	}
	suite.add(c)
	return suite
}

func (r report) junitForm() junitSuite {
	suite := junitSuite{Name: "clauses"}
	differ := slices.Concat(r.differ(safety), r.differ(liveness))
	for _, res := range r.Results {
		c := junitCase{
			Class: "level " + strconv.Itoa(res.Level), Name: res.Clause + " " + res.Title,
			Seconds: strconv.FormatFloat(res.Seconds, 'f', 3, 64),
		}
		if res.State == fail || res.State == skipped {
			var lines []string
			for _, exchange := range res.Exchanges {
				lines = append(lines, exchange...)
			}
			c.Skipped = &junitMessage{string(res.State) + ": " + res.Message, strings.Join(lines, "\n")}
			if slices.Contains(differ, res.Clause) {
				c.Failure, c.Skipped = c.Skipped, nil
			}
		}
		suite.add(c)
	}
	return suite
}

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"join": strings.Join, "upper": strings.ToUpper, "link": link, "lower": strings.ToLower,
}).Parse(page))

func (r report) writeHTML(w io.Writer) error {
	return pageTemplate.Execute(w, map[string]any{
		"Report": r, "Gaps": r.gaps(), "Form": r.formVerdict(), "Columns": r.columns(), "Cells": r.cells, "Coverage": r.coverage(), "Sent": r.sent(),
		"Differences": r.grouped(), "Summary": r.summary(), "Unsafe": r.Safety != noViolation || r.Liveness != noViolation,
	})
}
