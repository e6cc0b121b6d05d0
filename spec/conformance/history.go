package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// event is one line of a history: one of the members after Clause.
type event struct {
	At      float64          `json:"at"`               // seconds since the start
	Clause  string           `json:"clause,omitempty"` // the clause that was checked
	Run     *runInfo         `json:"run,omitempty"`
	Attempt *attempt         `json:"attempt,omitempty"`
	Fault   *fault           `json:"fault,omitempty"`
	Effects map[string]tally `json:"effects,omitzero"` // counted, even if there are none
	Finding *finding         `json:"finding,omitempty"`
	Result  *result          `json:"result,omitempty"`
}

// runInfo is what the judgement needs to know about a run. It is the first line.
type runInfo struct {
	Version   string            `json:"version"`
	Profile   string            `json:"profile"` // the name of the profile file
	URL       string            `json:"url"`
	Addresses int               `json:"addresses,omitempty"` // of the service
	Method    string            `json:"method"`
	Path      string            `json:"path"`
	Headers   map[string]string `json:"headers"`
	KeyHeader string            `json:"key_header"`
	Status    int               `json:"status"` // of success
	Effects   []string          `json:"effects"`
	Dialect   string            `json:"dialect,omitempty"`
	Missing   []gap             `json:"missing,omitempty"` // members that the profile file lacks
	Late      float64           `json:"late"`              // seconds for which an unanswered request may still be executed after a fault
	Settled   float64           `json:"settled,omitempty"` // the same without a fault
	Against   string            `json:"against,omitempty"` // the document instead of the profile
	Level     int               `json:"level"`
	Only      []string          `json:"only,omitempty"`
	Seed      uint64            `json:"seed"`
	Started   time.Time         `json:"started"`
}

// attempt is a request with a key, or one that should have had one.
type attempt struct {
	Number   int      `json:"number"`
	Who      string   `json:"who"`              // the member of the profile file with its credential
	Account  string   `json:"account"`          // the owner of the key
	Intent   string   `json:"intent,omitempty"` // keys with one intent may be executed once together
	Method   string   `json:"method"`
	Path     string   `json:"path"`
	Keys     []string `json:"keys"`
	Body     string   `json:"body,omitempty"`
	Cut      string   `json:"cut,omitempty"`     // where the connection was broken
	Address  string   `json:"address,omitempty"` // another one of the service
	Sent     float64  `json:"sent"`
	Ended    float64  `json:"ended"`
	Status   int      `json:"status,omitempty"`
	Answer   answered `json:"answer"`
	ID       string   `json:"id,omitempty"`
	Replayed bool     `json:"replayed,omitempty"`
	Response string   `json:"response,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// answered is what a response means for the key.
type answered string

const (
	succeeded answered = "success"
	rejected  answered = "rejected" // for good
	open      answered = "open"     // no response, or one that a later attempt may change
	unclear   answered = "unclear"  // another status
)

// fault is a command of the operator that ran.
type fault struct {
	Name string `json:"name"`
	Key  string `json:"key,omitempty"` // of commands.expire
}

// tally is how an effect has changed since the last count.
type tally struct {
	Number  int    `json:"number,omitempty"`  // more than at the last count
	Items   []item `json:"items,omitempty"`   // new items of a list
	Partial bool   `json:"partial,omitempty"` // the list has only new items, so it may lack some
}

func (t tally) size() int { return t.Number + len(t.Items) }

// item is an entry of a list of effects. Values are its other texts and numbers, by which
// it can be assigned to a key.
type item struct {
	ID     string   `json:"id"`
	Values []string `json:"values,omitempty"`
}

// finding is a violation that a check has seen itself.
type finding struct {
	Class    class  `json:"class"`
	Kind     kind   `json:"kind"`
	Message  string `json:"message"`
	Attempts []int  `json:"attempts,omitempty"` // their numbers
}

// recorder writes a history.
type recorder struct {
	started time.Time
	redact  func(string) string
	file    io.Writer // nil: none
	err     error
}

func (r *recorder) since(at time.Time) float64 { return at.Sub(r.started).Seconds() }

func (r *recorder) write(e event) {
	if r.file == nil || r.err != nil {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = fmt.Fprintf(r.file, "%s\n", r.redact(string(line)))
	}
	r.err = err
}

const longestLine = 64 << 20

func readHistory(r io.Reader) ([]event, error) {
	var events []event
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d is no event of a history: %w", len(events)+1, err)
		}
		events = append(events, e)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(events) == 0 || events[0].Run == nil {
		return nil, fmt.Errorf("the first line does not describe a run")
	}
	return events, nil
}
