package main

import (
	"context"
	"time"
)

// ownAccount is the account whose effects are counted.
const ownAccount = "account"

// record adds an event to the history, and judges it.
func (s *suite) record(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.At, e.Clause = s.history.since(time.Now()), s.clause
	s.ledger.apply(e)
	s.history.write(e)
}

// fault runs a command of the operator.
func (s *suite) fault(ctx context.Context, name string, run hook, key string) error {
	s.record(event{Fault: &fault{Name: name, Key: key}})
	return run(ctx, key)
}

// violates records a violation that no count of effects shows.
func (s *suite) violates(c class, k kind, message string, exchanges ...*exchange) {
	f := finding{Class: c, Kind: k, Message: message}
	for _, e := range exchanges {
		f.Attempts = append(f.Attempts, e.number)
	}
	s.record(event{Finding: &f})
}

// account ends a window: it counts the effects of all requests since the last count and
// judges them. The suite does so around every check. A check does so in between when it
// needs the number, or a small witness.
//
// It waits until no earlier request can be in progress any more. Otherwise an effect in the
// next window could be a late one of that request or a second one of the next.
func (s *suite) account(ctx context.Context) (map[string]tally, error) {
	for {
		fresh, err := s.accountFor(ctx, 0)
		s.mu.Lock()
		wait := s.ledger.settled() - s.history.since(time.Now())
		s.mu.Unlock()
		if err != nil || wait <= 0 || !pause(ctx, time.Duration(wait*float64(time.Second))) {
			return fresh, err
		}
	}
}

// accountFor waits until there are at least this many new effects, and all that the
// responses of this window have promised.
func (s *suite) accountFor(ctx context.Context, want int) (map[string]tally, error) {
	s.awaitQuiet(ctx)
	deadline := time.Now().Add(s.p.Patience)
	for {
		taken, err := s.effects(ctx)
		if err != nil {
			return nil, err
		}
		fresh := s.since(taken)
		if time.Now().After(deadline) || !s.incomplete(fresh, want) {
			s.numbers = taken.numbers()
			s.record(event{Effects: fresh})
			return fresh, nil
		}
		if !pause(ctx, s.poll) {
			return nil, ctx.Err()
		}
	}
}

func (s *suite) incomplete(fresh map[string]tally, want int) bool {
	for _, t := range fresh {
		if t.size() < want && !t.Partial {
			return true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.missing(fresh)
}

// awaitQuiet waits until no request of this window can be in progress. A check that failed
// may have left some.
func (s *suite) awaitQuiet(ctx context.Context) {
	s.sending.Wait()
	if s.p.Slow == nil {
		return
	}
	s.mu.Lock()
	unfinished := s.ledger.unfinished(s.p.Slow.Body)
	s.mu.Unlock()
	if unfinished {
		pause(ctx, 2*s.p.Slow.Lasts)
	}
}

// shortestList is the number of items that a list of effects has at least, if there are
// that many.
const shortestList = 20

// since compares a snapshot with the effects that the ledger knows.
func (s *suite) since(taken snapshot) map[string]tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := make(map[string]tally)
	for name, n := range taken {
		t := tally{Number: n.number - s.numbers[name]}
		for _, i := range n.items {
			if !s.ledger.known[name][i.ID] {
				t.Items = append(t.Items, i)
			}
		}
		t.Partial = n.listed >= shortestList && len(t.Items) == len(n.items)
		fresh[name] = t
	}
	return fresh
}

// executed requires this many new effects in this window, and ends it.
func (s *suite) executed(ctx context.Context, want int, exchanges ...*exchange) error {
	fresh, err := s.accountFor(ctx, want)
	if err != nil {
		return err
	}
	for _, e := range s.p.Effects {
		s.mu.Lock()
		n := fresh[e.Name].size() - s.ledger.belated[e.Name]
		s.mu.Unlock()
		if n > want || n < want && !fresh[e.Name].Partial {
			return fails(exchanges, "effects %q: %d instead of %d", e.Name, n, want)
		}
	}
	return nil
}
