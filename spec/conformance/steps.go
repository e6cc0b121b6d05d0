package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// settle sends the same request until its response is final.
func (s *suite) settle(ctx context.Context, r request, limit time.Duration) (*exchange, error) {
	started := time.Now()
	deadline := started.Add(limit)
	for {
		e := s.send(ctx, r)
		if !e.temporary() {
			return e, nil
		}
		if e.replayed(s) && e.status != http.StatusAccepted {
			return e, s.blocks(e.sent, fmt.Sprintf("a %d is stored and replayed", e.status), e)
		}
		wait := s.poll
		if after, ok := e.retryAfter(); ok {
			wait = max(wait, after)
		}
		if time.Now().Add(wait).After(deadline) {
			return e, s.blocks(started, fmt.Sprintf("after %s the request has no final response", limit), e)
		}
		if !pause(ctx, wait) {
			return e, ctx.Err()
		}
	}
}

// blocks records that a client has waited since a moment and gets no final response.
func (s *suite) blocks(since time.Time, message string, exchanges ...*exchange) error {
	s.violates(liveness, blocked, message, exchanges...)
	s.inVain(exchanges[0], since, errBlocked)
	return fails(exchanges, "%s", message)
}

// breaks records a wrong response that only this check can recognise.
func (s *suite) breaks(k kind, message string, exchanges ...*exchange) error {
	s.violates(safety, k, message, exchanges[len(exchanges)-1])
	return fails(exchanges, "%s", message)
}

// again repeats a request that has its final response. A server may release its lock just
// after it responds, so one 409 is no violation.
func (s *suite) again(ctx context.Context, r request) *exchange {
	e := s.send(ctx, r)
	if e.status != e.busy || e.status == 0 {
		return e
	}
	wait, _ := e.retryAfter()
	pause(ctx, min(max(wait, s.poll), s.p.Patience))
	s.covers("one %d just after the response, because the lock is released late", e.busy)
	return s.send(ctx, r)
}

// execute sends a request until it succeeds.
func (s *suite) execute(ctx context.Context, key, body string) (*exchange, error) {
	return s.settled(ctx, request{keys: []string{key}, body: body})
}

// settled sends a request until it is final, and requires success.
func (s *suite) settled(ctx context.Context, r request) (*exchange, error) {
	e, err := s.settle(ctx, r, s.p.Patience)
	if err == nil && !e.success(s) {
		err = fails(shown(e), "a valid request got %s instead of %d", e.outcome(), s.p.Operation.Status)
	}
	if err == nil && e.id(s) == "" {
		err = fails(shown(e), "the response has no id at operation.id")
	}
	return e, err
}

// snapshot has the effects at one time: a number, or the items of a list.
type snapshot map[string]counted

type counted struct {
	number int
	items  []item
	listed int // items before effects.only selects some
}

func (taken snapshot) numbers() map[string]int {
	numbers := make(map[string]int)
	for name, n := range taken {
		numbers[name] = n.number
	}
	return numbers
}

// effects reads all effects.
func (s *suite) effects(ctx context.Context) (snapshot, error) {
	taken := make(snapshot)
	for _, e := range s.p.Effects {
		var response *exchange
		deadline := time.Now().Add(s.p.Patience)
		for {
			response = s.get(ctx, e.URL, e.Headers)
			if !response.temporary() || time.Now().After(deadline) || !pause(ctx, s.poll) {
				break
			}
		}
		n, err := count(e, response)
		if err != nil {
			return nil, fails(shown(response), "effects %q cannot be counted: %v", e.Name, err)
		}
		taken[e.Name] = n
	}
	return taken, nil
}

func count(e effect, response *exchange) (counted, error) {
	if response.status != http.StatusOK {
		return counted{}, fmt.Errorf("%s instead of 200", response.outcome())
	}
	document, err := decode(response.body)
	if err != nil {
		return counted{}, err
	}
	if e.Number != nil {
		var n int
		value, _ := at(document, *e.Number)
		if _, err := fmt.Sscan(fmt.Sprint(value), &n); err != nil {
			return counted{}, fmt.Errorf("no number at %q", *e.Number)
		}
		return counted{number: n}, nil
	}
	value, _ := at(document, *e.List)
	entries, ok := value.([]any)
	if !ok {
		return counted{}, fmt.Errorf("no list at %q", *e.List)
	}
	n := counted{listed: len(entries)}
	for _, entry := range entries {
		if !matches(entry, e.Only) {
			continue
		}
		id, ok := at(entry, e.ID)
		if !ok {
			return counted{}, fmt.Errorf("an item has no id at %q", e.ID)
		}
		n.items = append(n.items, item{ID: fmt.Sprint(id), Values: scalars(entry)})
	}
	return n, nil
}

func matches(entry any, only map[string]string) bool {
	for pointer, want := range only {
		if value, ok := at(entry, pointer); !ok || fmt.Sprint(value) != want {
			return false
		}
	}
	return true
}

// refused requires that the requests are rejected and have no effect. All are sent, so that
// no status hides an effect.
func (s *suite) refused(ctx context.Context, requests map[string]request, rejection func(name string, e *exchange) error) error {
	if _, err := s.account(ctx); err != nil {
		return err
	}
	var sent []*exchange
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		e := s.send(ctx, requests[name])
		sent = append(sent, e)
		errs = append(errs, rejection(name, e))
	}
	return all(append(errs, s.executed(ctx, 0, sent...))...)
}

// malformed requires that a request is rejected for its form.
func (s *suite) isMalformed(name string, e *exchange) error {
	return s.hasStatus(malformed, name, e)
}

// hasStatus requires the status that the profile or the dialect has for a situation. before
// are exchanges that explain it.
func (s *suite) hasStatus(of situation, name string, e *exchange, before ...*exchange) error {
	profile, declared := s.p.Dialect.status(of)
	if declared != profile {
		s.deviates(fmt.Sprintf("%s: %d", of, declared))
	}
	if e.status == declared {
		return nil
	}
	return &violation{
		message:   fmt.Sprintf("%s: %s instead of %d", name, e.outcome(), declared),
		cause:     fmt.Sprintf("%s: %s instead of %d", of, e.outcome(), declared),
		form:      e.rejected(),
		exchanges: append(before, e),
	}
}

// hasVerdict requires a member retry, unless the dialect has none.
func (s *suite) hasVerdict(want, name string, e *exchange, before ...*exchange) error {
	if s.p.Dialect.Verdict == "none" {
		s.deviates(noVerdict)
		return nil
	}
	if e.verdict() == want {
		return nil
	}
	v := &violation{
		message:   fmt.Sprintf("%s: the verdict is %q instead of %s", name, e.verdict(), want),
		cause:     noVerdict,
		form:      true,
		exchanges: append(before, e),
	}
	if e.verdict() != "" {
		v.cause = fmt.Sprintf("verdict %s instead of %s", e.verdict(), want)
	}
	return v
}

// state reads the status resource of a key.
func (s *suite) state(ctx context.Context, key string) *exchange {
	return s.get(ctx, s.p.URL+strings.ReplaceAll(s.p.Status.Path, "{key}", url.PathEscape(key)), s.p.Account)
}

// running is a request in progress. end receives its response.
type running struct {
	request request
	end     chan *exchange
}

// begin sends the slow request and waits until it is in progress.
func (s *suite) begin(ctx context.Context, through string) *running {
	r := &running{
		request: request{keys: []string{newKey()}, body: s.p.Slow.Body},
		end:     make(chan *exchange, 1),
	}
	sent := r.request
	sent.through = through
	go func() { r.end <- s.send(ctx, sent) }()
	if s.p.Status == nil {
		pause(ctx, s.p.Slow.Lasts/4)
		return r
	}
	for deadline := time.Now().Add(s.p.Slow.Lasts / 2); time.Now().Before(deadline); pause(ctx, s.poll/5) {
		if s.state(ctx, r.request.keys[0]).status == http.StatusOK {
			break
		}
	}
	return r
}

// errTooFast means that the slow request finished before the check.
var errTooFast = notChecked("the slow request finished too early; make slow.lasts longer")

const attempts = 8

// during sends a request while the slow request is in progress. It returns the final
// response of the slow request, and the other one.
func (s *suite) during(ctx context.Context, change func(*request)) (first, second *exchange, err error) {
	if s.p.Slow == nil {
		return nil, nil, notChecked("slow is missing")
	}
	err = errTooFast
	for range attempts {
		slow, other, inProgress, failed := s.duringOnce(ctx, change)
		if failed != nil {
			return slow, other, failed
		}
		if !inProgress {
			continue
		}
		if first, second, err = slow, other, nil; !other.same(s, slow) {
			break
		}
		// The server waited, or the machine was too busy to send the request in time. Only
		// the former happens every time.
	}
	return first, second, err
}

func (s *suite) duringOnce(ctx context.Context, change func(*request)) (first, second *exchange, inProgress bool, err error) {
	running := s.begin(ctx, "")
	r := running.request
	change(&r)
	second = s.send(ctx, r)
	first = <-running.end
	inProgress = second.ended.Before(first.ended) || first.ended.Sub(second.sent) > s.p.Slow.Lasts/4
	if first.temporary() {
		first, err = s.settled(ctx, running.request)
	}
	return first, second, inProgress, err
}

// together sends requests at the same time.
func (s *suite) together(ctx context.Context, requests []request) []*exchange {
	return <-s.spread(ctx, requests, 0)
}

// spread sends requests, each some time after the one before, and returns their responses later.
func (s *suite) spread(ctx context.Context, requests []request, step time.Duration) <-chan []*exchange {
	responses := make([]*exchange, len(requests))
	sent := make(chan []*exchange, 1)
	var sending sync.WaitGroup
	for i, r := range requests {
		sending.Go(func() {
			pause(ctx, step*time.Duration(i))
			responses[i] = s.send(ctx, r)
		})
	}
	go func() {
		sending.Wait()
		sent <- responses
	}()
	return sent
}

// final is a request with its final response.
type final struct {
	request
	response *exchange
}

// finish executes a request, and declines one if the profile file has it.
func (s *suite) finish(ctx context.Context) ([]final, error) {
	o := s.p.Operation
	r := request{keys: []string{newKey()}, body: o.Body}
	first, err := s.settled(ctx, r)
	if err != nil || o.Declined == "" {
		return []final{{r, first}}, err
	}
	d := request{keys: []string{newKey()}, body: o.Declined}
	failed, err := s.settle(ctx, d, s.p.Patience)
	if err == nil && failed.status != o.Declines {
		err = fails(shown(failed), "the declined request: %s instead of %d", failed.outcome(), o.Declines)
	}
	return []final{{r, first}, {d, failed}}, err
}

// kept requires that final responses are repeated at some moment.
func (s *suite) kept(ctx context.Context, finals []final, moment string) error {
	marked := false
	for _, f := range finals {
		again, err := s.settle(ctx, f.request, s.p.Patience) // a server that has just started may reject it for a time
		if err != nil {
			return err
		}
		success := f.response.success(s)
		switch {
		case success && !again.same(s, f.response):
			return fails(shown(f.response, again), "the success is not stored: its repetition %s got %s", moment, again.outcome())
		case success:
			marked = again.replayed(s)
		case again.status != f.response.status, marked && !again.replayed(s), !marked && !bytes.Equal(again.body, f.response.body):
			return fails(shown(f.response, again), "the failure is not stored: its repetition %s got %s", moment, again.outcome())
		}
	}
	s.covers("%s %s", plural(len(finals), "response"), moment)
	return nil
}

func requireEffects(s *suite) error {
	if len(s.p.Effects) == 0 {
		return notChecked("effects is missing")
	}
	return nil
}

// all returns the first error. Neither checks of optional parts nor differences of form hide
// the others.
func all(errs ...error) error {
	var skipped, differs error
	checked := false
	for _, err := range errs {
		var reason notChecked
		var v *violation
		switch {
		case err == nil:
			checked = true
		case errors.As(err, &reason):
			skipped = cmp.Or(skipped, err)
		case errors.As(err, &v) && v.form:
			differs = cmp.Or(differs, err)
		default:
			return err
		}
	}
	if differs != nil || checked {
		return differs
	}
	return skipped
}

func contains(e *exchange, text string) bool {
	return text != "" && strings.Contains(string(e.body)+e.header.Get("Location"), text)
}
