package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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
	Ended   string           `json:"ended,omitempty"` // why the run ended early
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
	Commands  map[string]string `json:"commands,omitempty"` // by the name of the fault
	// Credentials are header fields by the member of the profile file that has them.
	Credentials map[string]map[string]string `json:"credentials,omitempty"`
	KeyHeader   string                       `json:"key_header"`
	Status      int                          `json:"status"` // of success
	Effects     []string                     `json:"effects"`
	Dialect     string                       `json:"dialect,omitempty"`
	Missing     []gap                        `json:"missing,omitempty"` // members that the profile file lacks
	Uncovered   []string                     `json:"uncovered,omitempty"`
	Late        float64                      `json:"late"`              // seconds for which an unanswered request may still be executed after a fault
	Settled     float64                      `json:"settled,omitempty"` // the same without a fault
	Against     string                       `json:"against,omitempty"` // the document instead of the profile
	Level       int                          `json:"level"`
	Quick       bool                         `json:"quick,omitempty"`
	Only        []string                     `json:"only,omitempty"`
	Seed        uint64                       `json:"seed"`
	Started     time.Time                    `json:"started"`
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

// judgeFile judges a history with the code of the run.
func judgeFile(name string) (report, error) {
	events, err := readFile(name)
	if err != nil {
		return report{}, err
	}
	return judge(events), nil
}

func readFile(name string) ([]event, error) {
	file, err := os.Open(name) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	events, err := readHistory(file)
	return events, errors.Join(err, file.Close())
}

func judge(events []event) report {
	l := newLedger()
	var results []result
	for _, e := range events {
		l.apply(e)
		if e.Result != nil {
			results = append(results, *e.Result)
		}
	}
	return l.report(results)
}

const mostRechecked = 5

// recheck sends the first successful keys of an earlier run again, for example after a day,
// and requires that none is executed.
func (s *suite) recheck(ctx context.Context, o options) (report, error) {
	events, err := readFile(o.recheck)
	if err != nil {
		return report{}, err
	}
	s.clause = "IR-35"
	info := s.info(o.profile)
	earlier := *events[0].Run
	s.record(event{Run: info})
	age := info.Started.Sub(earlier.Started).Seconds()
	var keys []attempt
	for _, e := range events {
		if a := e.Attempt; a != nil && a.Answer == succeeded && a.Who == ownAccount && a.Method == info.Method && a.Path == info.Path &&
			!slices.ContainsFunc(keys, func(known attempt) bool { return slices.Equal(known.Keys, a.Keys) }) && len(keys) < mostRechecked {
			one := *a
			one.Sent, one.Ended = a.Sent-age, a.Ended-age
			keys = append(keys, one)
		}
	}
	if len(keys) == 0 {
		return report{}, errors.New(o.recheck + " has no successful request of this operation")
	}
	if _, err := s.account(ctx); err != nil {
		return report{}, err
	}
	s.mu.Lock()
	s.ledger.remember(keys)
	s.mu.Unlock()
	var errs []error
	for _, a := range keys {
		e := s.again(ctx, request{keys: a.Keys, body: a.Body})
		errs = append(errs, s.rechecked(e, a))
	}
	_, err = s.account(ctx)
	c := clauses()[number(s.clause)-1]
	res := result{Clause: c.id, Level: c.level, Class: c.class, Keyword: c.keyword, Title: c.title}
	res.set(errors.Join(err, all(errs...)))
	s.redactResult(&res)
	s.record(event{Result: &res})
	return s.ledger.report([]result{res}), nil
}

// rechecked requires the stored response.
func (s *suite) rechecked(e *exchange, first attempt) error {
	if e.success(s) && e.id(s) == first.ID {
		return nil
	}
	return fails(shown(e), "a key of an earlier run gets %s instead of its response", e.outcome())
}

// remember adds keys that were executed in an earlier run.
func (l *ledger) remember(attempts []attempt) {
	for _, a := range attempts {
		l.attempt(startClause, &a)
	}
	for _, one := range l.window {
		for _, effect := range l.run.Effects {
			one.executed[effect] = 1
		}
	}
	l.window = nil
}
