package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// settle sends the same request until its response is final.
func (s *suite) settle(ctx context.Context, r request, limit time.Duration) (*exchange, error) {
	deadline := time.Now().Add(limit)
	for {
		e := s.send(ctx, r)
		if !e.temporary() {
			return e, nil
		}
		if e.replayed(s) && e.status != http.StatusAccepted {
			return e, fails(shown(e), "a %d is stored and replayed", e.status)
		}
		wait := s.poll
		if after, ok := e.retryAfter(); ok {
			wait = max(wait, after)
		}
		if time.Now().Add(wait).After(deadline) {
			return e, fails(shown(e), "after %s the request has no final response", limit)
		}
		if !pause(ctx, wait) {
			return e, ctx.Err()
		}
	}
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

// snapshot has the effects at one time: a number, or the ids of a list.
type snapshot map[string]counted

type counted struct {
	number int
	ids    map[string]bool
}

// effects reads all effects. It returns nil if none is configured.
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
	items, ok := value.([]any)
	if !ok {
		return counted{}, fmt.Errorf("no list at %q", *e.List)
	}
	ids := make(map[string]bool)
	for _, item := range items {
		if !matches(item, e.Only) {
			continue
		}
		id, ok := at(item, e.ID)
		if !ok {
			return counted{}, fmt.Errorf("an item has no id at %q", e.ID)
		}
		ids[fmt.Sprint(id)] = true
	}
	return counted{ids: ids}, nil
}

func matches(item any, only map[string]string) bool {
	for pointer, want := range only {
		if value, ok := at(item, pointer); !ok || fmt.Sprint(value) != want {
			return false
		}
	}
	return true
}

// since counts the effects after an earlier snapshot.
func (n counted) since(earlier counted) int {
	added := n.number - earlier.number
	for id := range n.ids {
		if !earlier.ids[id] {
			added++
		}
	}
	return added
}

// executed requires this many effects since the snapshot. A smaller number may still
// grow.
func (s *suite) executed(ctx context.Context, before snapshot, want int, exchanges ...*exchange) error {
	deadline := time.Now().Add(s.p.Patience)
	for {
		after, err := s.effects(ctx)
		if err != nil {
			return err
		}
		missing := false
		for _, e := range s.p.Effects {
			n := after[e.Name].since(before[e.Name])
			missing = missing || n < want
			if n > want || n < want && time.Now().After(deadline) {
				return fails(exchanges, "effects %q: %d instead of %d", e.Name, n, want)
			}
		}
		if !missing {
			return nil
		}
		if !pause(ctx, s.poll) {
			return ctx.Err()
		}
	}
}

// refused requires that the requests are rejected with this status (0: any 4xx) and have no
// effect.
func (s *suite) refused(ctx context.Context, status int, requests map[string]request) error {
	before, err := s.effects(ctx)
	if err != nil {
		return err
	}
	var sent []*exchange
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		e := s.send(ctx, requests[name])
		sent = append(sent, e)
		if status == 0 && !e.rejected() {
			return fails(shown(e), "%s: %s instead of a rejection", name, e.outcome())
		}
		if status != 0 && e.status != status {
			return fails(shown(e), "%s: %s instead of %d", name, e.outcome(), status)
		}
	}
	return s.executed(ctx, before, 0, sent...)
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
		return nil, nil, notChecked("slow is not configured")
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
	responses := make([]*exchange, len(requests))
	done := make(chan struct{}, len(requests))
	for i, r := range requests {
		go func() {
			responses[i] = s.send(ctx, r)
			done <- struct{}{}
		}()
	}
	for range requests {
		<-done
	}
	return responses
}

func requireEffects(s *suite) error {
	if len(s.p.Effects) == 0 {
		return notChecked("effects is not configured")
	}
	return nil
}

// all returns the first error. Checks of optional parts do not hide the others.
func all(errs ...error) error {
	var skipped error
	checked := false
	for _, err := range errs {
		var reason notChecked
		switch {
		case err == nil:
			checked = true
		case errors.As(err, &reason):
			skipped = err
		default:
			return err
		}
	}
	if checked {
		return nil
	}
	return skipped
}

func contains(e *exchange, text string) bool {
	return text != "" && strings.Contains(string(e.body)+e.header.Get("Location"), text)
}
