package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const version = "0.2"

// state is the result of a clause.
type state string

const (
	pass      state = "pass"
	dialectal state = "dialect"  // it differs from the profile as the profile file declares
	declared  state = "declared" // the profile file states it; no request has shown it
	fail      state = "fail"
	skipped   state = "not exercised"
)

type result struct {
	Clause    string     `json:"clause"`
	Level     int        `json:"level"` // 0: not observable
	Class     class      `json:"class"`
	Keyword   string     `json:"keyword"`
	Title     string     `json:"title"`
	State     state      `json:"state"`
	Message   string     `json:"message,omitempty"`
	Cause     string     `json:"cause,omitempty"`   // groups failures, such as "reused: 400 instead of 422"
	Covered   string     `json:"covered,omitempty"` // what a pass is based on
	Exchanges [][]string `json:"exchanges,omitempty"`
	Seconds   float64    `json:"seconds"`
}

func (r *result) set(err error) {
	var reason notChecked
	var stated onlyDeclared
	var v *violation
	switch {
	case err == nil:
		r.State = pass
	case errors.As(err, &reason):
		r.State, r.Message = skipped, err.Error()
	case errors.As(err, &stated):
		r.State, r.Message = declared, err.Error()
	default:
		r.State, r.Message = fail, err.Error()
		if errors.As(err, &v) {
			r.Cause = v.cause
			if v.form {
				r.Class = form
			}
			for _, e := range v.exchanges {
				r.Exchanges = append(r.Exchanges, e.lines())
			}
		}
	}
}

// judge makes a clause of safety or liveness fail that has shown a violation.
func (r *result) judge(l *ledger) {
	of := classOf(r.Clause)
	if of == form {
		return
	}
	var summaries []string
	for _, one := range l.seen {
		if one.clause != r.Clause || l.doubtful(one) {
			continue
		}
		if text := strings.ToLower(one.kind.title(one.scenario)) + ": " + one.summary(); !slices.Contains(summaries, text) {
			summaries = append(summaries, text)
		}
	}
	if len(summaries) == 0 {
		return
	}
	if r.State == fail {
		summaries = append(summaries, r.Message)
	}
	r.State, r.Class, r.Message, r.Cause = fail, of, strings.Join(summaries, "\n"), ""
}

// anomaly is a violation of safety or liveness. Violations with the same cause are one
// anomaly, with the smallest of them as its witness.
type anomaly struct {
	Number   int      `json:"number"`
	Class    class    `json:"class"`
	Kind     kind     `json:"kind"`
	Scenario scenario `json:"scenario"`
	Clauses  []string `json:"clauses"`
	Count    int      `json:"count"`          // how often it was seen
	Title    string   `json:"title"`          // "EXECUTED TWICE by concurrent duplicates"
	Summary  string   `json:"summary"`        // "12 requests, 1 key: 12 charges, expected 1"
	Witness  []string `json:"witness"`        // the requests of the key, the faults and the effects
	Replay   string   `json:"replay"`         // the command that shows it again
	Curl     string   `json:"curl,omitempty"` // lines for sh that repeat the witness
	Cause    string   `json:"cause,omitempty"`
}

// kind is what was violated.
type kind string

const (
	executedTwice kind = "EXECUTED TWICE"
	failedYetDone kind = "FAILURE ANSWERED, YET EXECUTED"
	lostEffect    kind = "SUCCESS ANSWERED, NOT EXECUTED"
	wrongResponse kind = "RESPONSE OF ANOTHER REQUEST"
	otherTenant   kind = "RESPONSE OF ANOTHER TENANT"
	otherKey      kind = "RESPONSE OF ANOTHER KEY"
	blocked       kind = "BLOCKED"
)

// verdict summarises the clauses of one class.
type verdict string

const (
	noViolation   verdict = "no violation found"
	clausesDiffer verdict = "clauses differ" // without an anomaly, such as a failure that is not stored
	violated      verdict = "violated"       // an anomaly was seen
	notJudged     verdict = "not judged"
)

const (
	unselectedReason = "no selected clause does it"
	endedReason      = "the run ended before"
)

// gap is a question that the run did not answer.
type gap struct {
	Scenario scenario `json:"scenario"`
	Reason   string   `json:"reason"` // such as the missing member of the profile file
}

// covering is a scenario that was exercised, such as "3 crashes".
type covering struct {
	Scenario scenario `json:"scenario"`
	Text     string   `json:"text"`
}

// matrixRow has the executions of the worst key in each scenario, or "ok".
type matrixRow struct {
	Effect string              `json:"effect"`
	Cells  map[scenario]string `json:"cells"`
}

type report struct {
	Version      string      `json:"version"`
	URL          string      `json:"url"`
	Operation    string      `json:"operation"`
	Level        int         `json:"level"`
	Reached      int         `json:"reached"`
	Partial      bool        `json:"partial"` // only some clauses were selected
	Seed         uint64      `json:"seed"`
	Started      time.Time   `json:"started"`
	Seconds      float64     `json:"seconds"`
	Safety       verdict     `json:"safety"`
	Liveness     verdict     `json:"liveness"`
	Against      string      `json:"against,omitempty"` // the document instead of the profile
	Dialect      string      `json:"dialect,omitempty"`
	Omitted      string      `json:"omitted,omitempty"` // by -quick
	Ended        string      `json:"ended,omitempty"`   // why the run ended early
	Uncovered    []string    `json:"uncovered,omitempty"`
	Foreign      string      `json:"foreign,omitempty"` // effects that no request has caused
	Requests     int         `json:"requests"`
	Keys         int         `json:"keys"`
	Executions   int         `json:"executions,omitempty"` // of the effect with the most; 0: not counted
	Exercised    []covering  `json:"exercised"`
	NotExercised []gap       `json:"not_exercised"`
	Anomalies    []anomaly   `json:"anomalies"`
	Matrix       []matrixRow `json:"matrix"`
	Results      []result    `json:"results"`
}

// Exit statuses of the command.
const (
	exitSafe = iota
	exitViolated
	exitUsage
	exitForm
	exitNotExercised
	exitDiffers
)

// exitMeanings has the meaning of each exit status.
func exitMeanings() []string {
	return []string{
		exitSafe:         "no violation of safety or liveness was found",
		exitViolated:     "safety or liveness is violated: a request was executed twice or lost, got the response of another one, or is blocked",
		exitUsage:        "the usage or the profile file is wrong, the operation does not work, the account has other traffic, or the run was interrupted",
		exitForm:         "with -strict: the form differs from the profile. With -baseline: from the baseline",
		exitNotExercised: "with -require: a required scenario was not exercised",
		exitDiffers:      "a clause of safety or liveness fails, but no violation was seen",
	}
}

// quickOmits says what -quick leaves out.
const quickOmits = "-quick leaves out form, query parameters, pauses, changed bodies with an interrupted key, the third race, random orders of failures, " +
	"and all but one crash and one kill of the store"

// report summarises what the ledger has judged and what the clauses have found.
func (l *ledger) report(results []result) report {
	for i := range results {
		results[i].judge(l)
	}
	slices.SortStableFunc(results, func(a, b result) int { return number(a.Clause) - number(b.Clause) })
	r := report{
		Version: l.run.Version, URL: l.run.URL, Operation: l.run.Method + " " + l.run.Path,
		Level: l.run.Level, Partial: len(l.run.Only) > 0, Seed: l.run.Seed, Started: l.run.Started, Seconds: l.ended,
		Against: l.run.Against, Dialect: l.run.Dialect, Foreign: l.foreignText(), Anomalies: l.anomalies(), Results: results,
		Safety: noViolation, Liveness: noViolation, Requests: l.requests, Keys: len(l.keys), Ended: l.early,
	}
	if !r.Partial {
		r.Uncovered = l.run.Uncovered
	}
	for _, n := range l.executions {
		r.Executions = max(r.Executions, n)
	}
	for _, a := range r.Anomalies {
		if a.Class == safety {
			r.Safety = violated
		} else {
			r.Liveness = violated
		}
	}
	if r.Safety == noViolation && slices.ContainsFunc(l.seen, l.doubtful) {
		r.Safety = notJudged
	}
	for c, v := range map[class]*verdict{safety: &r.Safety, liveness: &r.Liveness} {
		if *v == noViolation && len(r.differ(c)) > 0 {
			*v = clausesDiffer
		}
	}
	if l.run.Quick {
		r.Omitted = quickOmits
	}
	r.exercise(l)
	r.Reached = r.reached()
	return r
}

// differ returns the clauses of a class that fail without an anomaly.
func (r report) differ(c class) []string {
	var ids []string
	for _, res := range r.Results {
		if res.State == fail && res.Class == c && !slices.ContainsFunc(r.Anomalies, func(a anomaly) bool { return slices.Contains(a.Clauses, res.Clause) }) {
			ids = append(ids, res.Clause)
		}
	}
	return ids
}

// exercise describes what the run has covered.
func (r *report) exercise(l *ledger) {
	missing := make(map[scenario]string)
	for _, g := range l.run.Missing {
		missing[g.Scenario] = g.Reason
	}
	if len(l.run.Effects) == 0 {
		r.NotExercised = append(r.NotExercised, gap{"effects", "effects missing; only the ids of responses show a second execution"})
	}
	for _, effect := range l.run.Effects {
		r.Matrix = append(r.Matrix, matrixRow{effect, make(map[scenario]string)})
	}
	for _, q := range questions() {
		c := l.covered[q.scenario]
		if c == nil {
			reason := cmp.Or(missing[q.scenario], unselectedReason)
			if reason == unselectedReason && l.early != "" {
				reason = endedReason
			}
			r.NotExercised = append(r.NotExercised, gap{q.scenario, reason})
			continue
		}
		r.Exercised = append(r.Exercised, covering{q.scenario, c.text(q.scenario, l.run.Addresses)})
		for _, row := range r.Matrix {
			row.Cells[q.scenario] = c.cell(row.Effect)
		}
	}
}

func (c *coverage) cell(effect string) string {
	if worst, exceeded := c.worst[effect]; exceeded {
		return fmt.Sprintf("%d/%d", worst.got, worst.due)
	}
	return "ok"
}

// text is such as "3 crashes" or "keys up to 38 s old".
func (c *coverage) text(s scenario, addresses int) string {
	switch s {
	case crashed:
		return plural(c.faults, "crash")
	case paused:
		if addresses == 1 {
			return plural(c.faults, "pause") + " of the only address, so nothing took a key over meanwhile"
		}
		return plural(c.faults, "pause")
	case storeLost:
		return plural(c.faults, "kill") + " of the store"
	case later:
		return fmt.Sprintf("keys up to %s old", age(c.oldest))
	default:
		return string(s)
	}
}

func age(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// expectation is a line of a baseline: a class and what is known to fail, such as
// "form IR-13" or "safety IR-16".
func (r report) expectations() []string {
	var lines []string
	for _, a := range r.Anomalies {
		for _, clause := range a.Clauses {
			lines = append(lines, string(a.Class)+" "+clause)
		}
	}
	for _, c := range []class{safety, liveness, form} {
		for _, id := range r.differ(c) {
			lines = append(lines, string(c)+" "+id)
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
