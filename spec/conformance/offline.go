package main

import (
	"context"
	"errors"
	"os"
	"slices"
)

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
		errs = append(errs, s.kept(e, a))
	}
	_, err = s.account(ctx)
	c := clauses()[number(s.clause)-1]
	res := result{Clause: c.id, Level: c.level, Class: c.class, Keyword: c.keyword, Title: c.title}
	res.set(errors.Join(err, all(errs...)))
	s.redactResult(&res)
	s.record(event{Result: &res})
	return s.ledger.report([]result{res}), nil
}

// kept requires the stored response.
func (s *suite) kept(e *exchange, first attempt) error {
	if e.status == first.Status && e.id(s) == first.ID {
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
