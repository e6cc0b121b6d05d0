package main

import (
	"errors"
	"time"
)

const version = "0.2"

// state is the result of a clause.
type state string

const (
	pass     state = "pass"
	dialect  state = "dialect"  // it differs from the profile as the profile file declares
	declared state = "declared" // the profile file states it; no request has shown it
	fail     state = "fail"
	skipped  state = "not exercised"
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
	var v *violation
	switch {
	case err == nil:
		r.State = pass
	case errors.As(err, &reason):
		r.State, r.Message = skipped, err.Error()
	default:
		r.State, r.Message = fail, err.Error()
		if errors.As(err, &v) {
			r.Cause = v.cause
			for _, e := range v.exchanges {
				r.Exchanges = append(r.Exchanges, e.lines())
			}
		}
	}
}

// anomaly is a violation of safety or liveness. Violations with the same cause are one
// anomaly, with the smallest of them as its witness.
type anomaly struct {
	Number   int      `json:"number"`
	Class    class    `json:"class"`
	Kind     kind     `json:"kind"`
	Scenario scenario `json:"scenario"`
	Clauses  []string `json:"clauses"`
	Count    int      `json:"count"`   // how often it was seen
	Title    string   `json:"title"`   // "EXECUTED TWICE by concurrent duplicates"
	Summary  string   `json:"summary"` // "12 requests, 1 key: 12 charges, expected 1"
	Witness  []string `json:"witness"` // the requests of the key, the faults and the effects
	Replay   string   `json:"replay"`  // the command that shows it again
	Curl     string   `json:"curl,omitempty"`
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
	blocked       kind = "BLOCKED"
)

// verdict summarises the clauses of one class.
type verdict string

const (
	noViolation verdict = "no violation found"
	violated    verdict = "violated"
	notJudged   verdict = "not judged"
)

// gap is a question that the run did not answer.
type gap struct {
	Scenario scenario `json:"scenario"`
	Reason   string   `json:"reason"` // such as the missing member of the profile file
}

// cells of the matrix: the executions of the worst key, or that none was exceeded.
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
	Form         string      `json:"form"` // a sentence
	Covered      []string    `json:"covered"`
	NotExercised []gap       `json:"not_exercised"`
	Anomalies    []anomaly   `json:"anomalies"`
	Matrix       []matrixRow `json:"matrix"`
	Results      []result    `json:"results"`
}

// exit statuses
const (
	exitSafe         = 0 // no violation of safety or liveness
	exitViolated     = 1
	exitUsage        = 2 // wrong usage or profile file, or the operation does not work
	exitForm         = 3 // with -strict or -baseline: the form differs
	exitNotExercised = 4 // a check of -require was not exercised
)
