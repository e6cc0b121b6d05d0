package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
)

func checkDisconnected(ctx context.Context, s *suite) error { // IR-31
	if err := requireEffects(s); err != nil {
		return err
	}
	if s.p.Slow == nil {
		return notChecked("slow is missing")
	}
	// A busy server may not have read a request when its connection breaks, so all must stop.
	var lost *exchange
	var stopped error
	for range disconnects {
		if _, err := s.account(ctx); err != nil {
			return err
		}
		var err error
		if lost, err = s.throughProxy(ctx, cutRunning, request{keys: []string{newKey()}, body: s.p.Slow.Body}); err != nil {
			return err
		}
		if lost.err == nil {
			return errTooFast
		}
		if stopped = s.executed(ctx, 1, lost); stopped == nil { // without another request
			s.covers("a request, cut after %s", s.p.Slow.Lasts/3)
			return nil
		}
	}
	s.violates(liveness, blocked, "requests stop with their connections", lost)
	return stopped
}

const disconnects = 3

func checkLostResponse(ctx context.Context, s *suite) error { // IR-32
	var errs []error
	for where := range cuts {
		errs = append(errs, s.lostResponse(ctx, where))
		s.covers("cut %s", where)
	}
	return cmp.Or(all(errs...), requireEffects(s))
}

func (s *suite) lostResponse(ctx context.Context, where cut) error {
	if _, err := s.account(ctx); err != nil {
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
	again := s.again(ctx, r)
	if !again.same(s, first) {
		return fails(shown(lost, first, again), "the connection broke %s: two responses, the second one is %s", where, again.outcome())
	}
	if where != cutBefore && where != cutRunning && s.p.ReplayHeader != "" && again.replayed(s) && !first.replayed(s) {
		return fails(shown(lost, first), "the connection broke %s: the request was executed again", where)
	}
	return s.executed(ctx, 1, lost, first, again)
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
	// A key may be bound to what was rejected first, so each rejection is also the first response.
	plans := [][]accident{
		{doubled},
		{truncated},
		{noAccount},
		{broken + accident(cutResponse), truncated},
		{broken + accident(cutResponse), doubled},
		{broken + accident(cutRunning), noAccount},
	}
	for range s.randomPlans() {
		plan := make([]accident, mostFaults)
		for i := range plan {
			plan[i] = accident(s.random.IntN(int(accidents)))
		}
		plans = append(plans, plan)
	}
	var errs []error
	for _, plan := range plans {
		errs = append(errs, s.obey(ctx, plan))
	}
	s.covers("%s of failures", plural(len(plans), "order"))
	return all(errs...)
}

func (s *suite) randomPlans() int {
	if s.quick {
		return 0
	}
	return 5
}

// obey is a client that knows retry and Retry-After only. Without a member retry, it
// decides by the status.
func (s *suite) obey(ctx context.Context, plan []accident) error {
	// An accident that the server does not reject is another request, not a retry.
	plan = slices.DeleteFunc(slices.Clone(plan), func(a accident) bool { return !s.rejects(ctx, a) })
	if _, err := s.account(ctx); err != nil {
		return err
	}
	key := newKey()
	r := request{intent: "the order of " + key, body: s.p.Operation.Body}
	var sent []*exchange
	for try := range mostTries {
		happens := none
		if try < len(plan) {
			happens = plan[try]
		}
		r.keys = []string{key}
		e, err := s.meets(ctx, r, happens)
		if err != nil {
			return err
		}
		sent = append(sent, e)
		if e.success(s) {
			return s.executed(ctx, 1, sent...)
		}
		wait, _ := e.retryAfter()
		switch s.advice(e) {
		case "same-key", "corrected":
			if happens == none {
				wait = max(wait, s.poll)
			}
		case "new-key":
			key = newKey()
		default:
			return fails(sent, "a valid request got never (%d)", e.status)
		}
		if !pause(ctx, wait) {
			return ctx.Err()
		}
	}
	last := sent[len(sent)-1]
	return s.blocks(sent[0].sent, fmt.Sprintf("%d attempts, and no success: the last one got %s", mostTries, last.outcome()), slices.Concat(sent[:2], shown(last))...)
}

// advice is the verdict of a response, or what its status allows.
func (s *suite) advice(e *exchange) string {
	switch verdict := e.verdict(); {
	case e.err != nil, e.status == http.StatusAccepted:
		return "same-key"
	case verdict != "":
		return verdict
	case e.temporary():
		return "same-key"
	case e.rejected():
		return "corrected"
	default:
		return "never"
	}
}

// rejects reports whether the server rejects a damaged request with a new key.
func (s *suite) rejects(ctx context.Context, happens accident) bool {
	if happens != doubled && happens != truncated && happens != noAccount {
		return true
	}
	rejects, known := s.rejecting[happens]
	if !known {
		e, err := s.meets(ctx, request{keys: []string{newKey()}, body: s.p.Operation.Body}, happens)
		rejects = err == nil && e.rejected()
		s.rejecting[happens] = rejects
		if !rejects {
			s.covers("not %s, which the server accepts", happens)
		}
	}
	return rejects
}

// meets sends a request to which something happens.
func (s *suite) meets(ctx context.Context, r request, happens accident) (*exchange, error) {
	switch happens {
	case none:
	case doubled:
		r.keys = []string{r.keys[0], r.keys[0]}
	case truncated:
		r.body = r.body[:len(r.body)/2]
	case noAccount:
		r.noAccount = true
	default:
		return s.throughProxy(ctx, cut(happens-broken), r)
	}
	return s.send(ctx, r), nil
}

func (a accident) String() string {
	return [...]string{"an undamaged request", "a doubled key", "half of a body", "a missing credential"}[min(a, noAccount)]
}
