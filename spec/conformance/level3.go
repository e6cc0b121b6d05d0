package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
)

const (
	races       = 3
	contestants = 12
)

func checkRace(ctx context.Context, s *suite) error { // IR-16
	rounds := races
	if s.quick {
		rounds = 2
	}
	var errs []error
	for race := range rounds {
		errs = append(errs, s.race(ctx, race > 0))
	}
	s.covers("%d races of %d requests", rounds, contestants)
	return all(append(errs, s.overlapping(ctx), s.crowd(ctx), s.replicas(ctx))...)
}

// crowd sends requests with different keys at the same time, and then each again. A server
// whose requests share a variable gives the response of one to another.
func (s *suite) crowd(ctx context.Context) error {
	if _, err := s.account(ctx); err != nil {
		return err
	}
	requests := make([]request, contestants)
	for i := range requests {
		requests[i] = request{keys: []string{newKey()}, body: []string{s.slowBody(), s.p.Operation.Body}[i%2]}
	}
	errs := make([]error, contestants)
	responses := s.together(ctx, requests)
	for i, first := range responses {
		again, err := s.settled(ctx, requests[i])
		if err == nil && first.success(s) && !again.same(s, first) {
			err = fails(shown(first, again), "of %d concurrent requests with different keys, one got the response of another", contestants)
		}
		errs[i] = err
	}
	s.covers("%d keys at once", contestants)
	return all(append(errs, s.executed(ctx, contestants, responses...))...)
}

// race sends requests with one key at the same time. With mixed, half of them are different.
func (s *suite) race(ctx context.Context, mixed bool) error {
	if _, err := s.account(ctx); err != nil {
		return err
	}
	o := s.p.Operation
	key := newKey()
	requests := make([]request, contestants)
	for i := range requests {
		requests[i] = request{keys: []string{key}, body: o.Body}
		if mixed && i%2 == 1 {
			requests[i].body = o.Changed
		}
	}
	responses := s.together(ctx, requests)
	winner, err := s.winner(ctx, requests, responses)
	if err != nil {
		return err
	}
	var errs []error
	for i, e := range responses {
		same := requests[i].body == winner.sentBody
		switch {
		case e.success(s) && e.id(s) != winner.id(s):
			errs = append(errs, fails(shown(winner, e), "two of %d concurrent requests were executed", contestants))
		case !same && !overloaded(e):
			errs = append(errs, s.hasStatus(reused, "a different concurrent request", e, winner))
		case same && e.rejected() && !e.temporary():
			errs = append(errs, fails(shown(winner, e), "the same concurrent request: %s", e.outcome()))
		}
	}
	return all(append(errs, s.executed(ctx, 1, winner))...)
}

func overloaded(e *exchange) bool {
	return e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable
}

// winner returns the response of the executed request. If no response has it, the requests
// are sent again.
func (s *suite) winner(ctx context.Context, requests []request, responses []*exchange) (*exchange, error) {
	for _, e := range responses {
		if e.success(s) {
			return e, nil
		}
	}
	first, err := s.settle(ctx, requests[0], s.p.Patience)
	if err == nil && !first.success(s) {
		return s.settled(ctx, requests[1])
	}
	return first, err
}

func checkDuplicate(ctx context.Context, s *suite) error { // IR-29
	first, second, err := s.during(ctx, func(*request) {})
	if err != nil {
		return err
	}
	if err := s.hasStatus(inProgress, "a duplicate of a running request", second, first); err != nil {
		return err
	}
	return s.temporaryVerdict(second)
}

// temporaryVerdict requires the verdict and the Retry-After of a temporary rejection.
func (s *suite) temporaryVerdict(e *exchange) error {
	if err := s.hasVerdict("same-key", fmt.Sprintf("a %d", e.status), e); err != nil {
		return err
	}
	_, ok := e.retryAfter()
	switch {
	case ok || e.status == http.StatusInternalServerError:
		return nil
	case s.p.Dialect.RetryAfter == "none":
		s.deviates(noRetryAfter)
		return nil
	}
	return &violation{message: fmt.Sprintf("a %d without Retry-After in seconds", e.status), cause: noRetryAfter, exchanges: shown(e)}
}

func checkConflictNotStored(ctx context.Context, s *suite) error { // IR-30
	var key string
	first, second, err := s.during(ctx, func(r *request) { key = r.keys[0] })
	if err != nil {
		return err
	}
	if second.status != second.busy {
		return notChecked(fmt.Sprintf("the duplicate got %s instead of %d", second.outcome(), second.busy))
	}
	again := s.again(ctx, request{keys: []string{key}, body: s.p.Slow.Body})
	if !again.same(s, first) {
		return fails(shown(first, second, again), "after the request has finished, its duplicate gets %s", again.outcome())
	}
	return nil
}

func checkTemporary(ctx context.Context, s *suite) error { // IR-40
	// Each part is counted by itself, so that its effects are not those of another one.
	conflict := func() error {
		_, second, err := s.during(ctx, func(*request) {})
		if err != nil || second.status != second.busy {
			return cmp.Or(err, error(notChecked("no duplicate was rejected as in progress")))
		}
		s.covers("a duplicate")
		return s.temporaryVerdict(second)
	}
	overload := func() error {
		if s.p.Overload == 0 {
			return notChecked("overload is missing")
		}
		if _, err := s.account(ctx); err != nil {
			return err
		}
		_, rejected, err := s.overload(ctx)
		for _, e := range rejected {
			s.covers("overload")
			if err := s.temporaryVerdict(e); err != nil {
				return err
			}
		}
		return err
	}
	interruption := func() error {
		if s.level < 5 || s.hooks.interrupt == nil {
			return notChecked("commands.interrupt is missing")
		}
		if _, err := s.account(ctx); err != nil {
			return err
		}
		failed, _, err := s.interrupted(ctx)
		if failed == nil || failed.status != http.StatusInternalServerError && !overloaded(failed) {
			return cmp.Or(err, error(notChecked("the interruption caused no temporary rejection")))
		}
		s.covers("an interruption")
		return s.temporaryVerdict(failed)
	}
	return all(conflict(), overload(), interruption())
}

func supports(s *suite, preference string) error {
	for _, p := range s.p.Preferences {
		if p == preference {
			return nil
		}
	}
	return notChecked("preferences does not have " + preference)
}

// slowBody returns the slow body, or the ordinary one.
func (s *suite) slowBody() string {
	if s.p.Slow != nil {
		return s.p.Slow.Body
	}
	return s.p.Operation.Body
}

func checkAsync(ctx context.Context, s *suite) error { // IR-45
	if err := supports(s, preferAsync); err != nil {
		return err
	}
	if _, err := s.account(ctx); err != nil {
		return err
	}
	r := request{keys: []string{newKey()}, body: s.slowBody(), header: map[string]string{"Prefer": preferAsync}}
	accepted := s.send(ctx, r)
	if accepted.status != http.StatusAccepted {
		return fails(shown(accepted), "respond-async: %s instead of 202", accepted.outcome())
	}
	if accepted.header.Get("Location") == "" || !strings.Contains(accepted.header.Get("Preference-Applied"), preferAsync) {
		return fails(shown(accepted), "the 202 needs Location and Preference-Applied: respond-async")
	}
	r.header = nil
	if _, err := s.settled(ctx, r); err != nil {
		return err
	}
	return s.executed(ctx, 1, accepted)
}

func checkWait(ctx context.Context, s *suite) error { // IR-46
	if err := supports(s, preferWait); err != nil {
		return err
	}
	seconds := 1 + int(math.Ceil(min(s.p.Patience/2, 20e9).Seconds()))
	key := newKey()
	first, err := s.execute(ctx, key, s.p.Operation.Body)
	if err != nil {
		return err
	}
	for _, value := range []string{"wait=x", `wait="`, "wait=99999999999999999999", "conformance; a=b"} {
		again := s.again(ctx, request{keys: []string{key}, body: s.p.Operation.Body, header: map[string]string{"Prefer": value}})
		if !again.same(s, first) {
			return fails(shown(first, again), "Prefer: %s is not ignored", value)
		}
	}
	if s.p.Slow == nil {
		return nil
	}
	var second *exchange
	for try, inProgress := 0, false; !inProgress; try++ {
		if try == attempts {
			return errTooFast
		}
		first, second, inProgress, err = s.duringOnce(ctx, func(r *request) {
			r.header = map[string]string{"Prefer": fmt.Sprintf("wait=%d", seconds)}
		})
		if err != nil {
			return err
		}
	}
	if !second.same(s, first) {
		return fails(shown(first, second), "Prefer: wait=%d: %s instead of the stored response", seconds, second.outcome())
	}
	return nil
}

// overload sends new requests at the same time. It returns those that were rejected for
// overload, and their responses.
func (s *suite) overload(ctx context.Context) (rejected []request, responses []*exchange, err error) {
	requests := make([]request, s.p.Overload)
	for i := range requests {
		requests[i] = request{keys: []string{newKey()}, body: s.slowBody()}
	}
	s.excuse(1)
	all := s.together(ctx, requests)
	s.excuse(-1)
	for i, e := range all {
		if overloaded(e) {
			rejected, responses = append(rejected, requests[i]), append(responses, e)
		}
	}
	if len(rejected) == 0 {
		return nil, nil, notChecked(fmt.Sprintf("%d concurrent requests did not overload the server", s.p.Overload))
	}
	return rejected, responses, nil
}

func checkOverload(ctx context.Context, s *suite) error { // IR-48
	if s.p.Overload == 0 {
		return notChecked("overload is missing")
	}
	rejected, responses, err := s.overload(ctx)
	if err != nil {
		return err
	}
	for i := range rejected[:min(3, len(rejected))] {
		if _, err := s.account(ctx); err != nil {
			return err
		}
		// If the key was stored, a changed request is rejected as reused.
		e, err := s.settle(ctx, request{keys: rejected[i].keys, body: s.p.Operation.Changed}, s.p.Patience)
		if err != nil {
			return err
		}
		if !e.success(s) || e.replayed(s) {
			return fails(shown(responses[i], e), "a rejection for overload has stored the key")
		}
		if err := s.executed(ctx, 1, responses[i], e); err != nil {
			return err
		}
	}
	return nil
}
