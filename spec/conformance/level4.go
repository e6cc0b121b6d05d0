package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

func checkDisconnected(ctx context.Context, s *suite) error { // IR-31
	if err := requireEffects(s); err != nil {
		return err
	}
	if s.p.Slow == nil {
		return notChecked("slow is not configured")
	}
	before, err := s.effects(ctx)
	if err != nil {
		return err
	}
	lost, err := s.throughProxy(ctx, cutRunning, request{keys: []string{newKey()}, body: s.p.Slow.Body})
	if err != nil {
		return err
	}
	if lost.err == nil {
		return errTooFast
	}
	return s.executed(ctx, before, 1, lost) // without another request
}

func checkLostResponse(ctx context.Context, s *suite) error { // IR-32
	for where := range cuts {
		before, err := s.effects(ctx)
		if err != nil {
			return err
		}
		r := request{keys: []string{newKey()}, body: s.p.Operation.Body}
		if where == cutRunning {
			r.body = s.slowBody()
		}
		lost, err := s.throughProxy(ctx, where, r)
		if err != nil {
			return err
		}
		first, err := s.settled(ctx, r)
		if err != nil {
			return fmt.Errorf("the connection broke %s: %w", where, err)
		}
		again := s.send(ctx, r)
		if !again.same(s, first) {
			return fails(shown(lost, first, again), "the connection broke %s: two responses", where)
		}
		if where != cutBefore && where != cutRunning && s.p.ReplayHeader != "" && again.replayed(s) && !first.replayed(s) {
			return fails(shown(lost, first), "the connection broke %s: the request was executed again", where)
		}
		if err := s.executed(ctx, before, 1, lost, first, again); err != nil {
			return err
		}
	}
	return nil
}

// accident is what happens to one attempt of the literal client.
type accident int

const (
	none       accident = iota
	doubled             // two lines with the key
	truncated           // half of the body
	noAccount           // no credential
	broken              // the connection breaks: broken + cut
	accidents  = broken + accident(cuts)
	mostTries  = 40
	mostFaults = 4
)

func checkLiteralClient(ctx context.Context, s *suite) error { // IR-43
	if err := requireEffects(s); err != nil {
		return err
	}
	plans := [][]accident{
		{broken + accident(cutResponse), truncated},
		{broken + accident(cutResponse), doubled},
		{broken + accident(cutRunning), noAccount},
	}
	for range 5 {
		plan := make([]accident, mostFaults)
		for i := range plan {
			plan[i] = accident(s.random.IntN(int(accidents)))
		}
		plans = append(plans, plan)
	}
	for _, plan := range plans {
		if err := s.obey(ctx, plan); err != nil {
			return err
		}
	}
	return nil
}

// obey is a client that knows retry and Retry-After only.
func (s *suite) obey(ctx context.Context, plan []accident) error {
	before, err := s.effects(ctx)
	if err != nil {
		return err
	}
	key := newKey()
	var sent []*exchange
	for try := range mostTries {
		happens := none
		if try < len(plan) {
			happens = plan[try]
		}
		e, err := s.attempt(ctx, key, happens)
		if err != nil {
			return err
		}
		sent = append(sent, e)
		if e.success(s) {
			return s.executed(ctx, before, 1, sent...)
		}
		wait := time.Duration(0)
		if after, ok := e.retryAfter(); ok {
			wait = after
		}
		switch verdict := e.verdict(); {
		case e.err != nil, verdict == "same-key", verdict == "corrected", e.status == 202:
			if happens == none {
				wait = max(wait, s.poll)
			}
		case verdict == "new-key":
			key = newKey()
		case verdict == "never":
			return fails(sent, "a valid request got never")
		default:
			return notChecked("the client stopped: an error has no verdict (IR-38)")
		}
		if !pause(ctx, wait) {
			return ctx.Err()
		}
	}
	return fails(slices.Concat(sent[:2], sent[len(sent)-1:]), "%d attempts, and no success", mostTries)
}

func (s *suite) attempt(ctx context.Context, key string, happens accident) (*exchange, error) {
	r := request{keys: []string{key}, body: s.p.Operation.Body}
	switch happens {
	case none:
	case doubled:
		r.keys = []string{key, key}
	case truncated:
		r.body = r.body[:len(r.body)/2]
	case noAccount:
		r.noAccount = true
	default:
		return s.throughProxy(ctx, cut(happens-broken), r)
	}
	return s.send(ctx, r), nil
}
