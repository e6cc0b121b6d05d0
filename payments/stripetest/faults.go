package stripetest

import (
	"fmt"
	"slices"
	"time"
)

// A Fault is something that goes wrong with a request. What matters is whether
// the request had its effect, and whether its key remembers.
type Fault string

// Before anything is looked at. No effect, nothing remembered.
const (
	// CloseBefore closes the connection: EOF for the client.
	CloseBefore Fault = "close-before"
	// HoldArrival keeps the request on its way until Release: a straggler,
	// which arrives when everything else has moved on.
	HoldArrival Fault = "hold-arrival"
	// RateLimit answers 429 rate_limit.
	RateLimit Fault = "rate-limit"
	// Unauthorized answers 401.
	Unauthorized Fault = "unauthorized"
	// Unavailable answers 503 with HTML, from something in front of Stripe.
	Unavailable Fault = "unavailable"
	// KeyInUse answers 409 idempotency_key_in_use.
	KeyInUse Fault = "key-in-use"
)

// When a request is about to run, which a replay or an invalid request never
// is.
const (
	// LockTimeout answers 429 lock_timeout: no effect, nothing remembered.
	LockTimeout Fault = "lock-timeout"
	// HoldRunning stops the request before its effect until Release, whether
	// the client stays or not. Meanwhile its key is in flight and its intent
	// is held.
	HoldRunning Fault = "hold-running"
	// Slow delays the effect by Rule.Delay, in the same way.
	Slow Fault = "slow"
	// ErrorBefore answers 500 without the effect. The key remembers the 500.
	ErrorBefore Fault = "error-before"
	// ErrorAfter answers 500 after the effect. The key remembers the 500.
	ErrorAfter Fault = "error-after"
	// ErrorLater answers 500, remembered, and has its effect on Release: what
	// Stripe calls rolling forward.
	ErrorLater Fault = "error-later"
	// NextPageError answers 500 to a list request for any page but the first.
	NextPageError Fault = "next-page-error"
)

// After the effect. The key remembers the answer that the client misses.
const (
	// CloseAfter closes the connection: EOF.
	CloseAfter Fault = "close-after"
	// ResetAfter resets it: ECONNRESET.
	ResetAfter Fault = "reset-after"
	// CutBody closes it in the middle of the body: unexpected EOF.
	CutBody Fault = "cut-body"
	// HoldResponse sends nothing until Release, or until the client has gone.
	HoldResponse Fault = "hold-response"
	// BadGateway answers 502 with a proxy's HTML.
	BadGateway Fault = "bad-gateway"
)

// Always makes a Rule strike without end.
const Always = -1

// A Rule says which requests a fault strikes. Conditions left empty hold for
// any request.
type Rule struct {
	Fault    Fault
	Endpoint string        // as in "POST /v1/payment_intents/{id}/confirm"
	Key      string        // the Idempotency-Key
	OrderID  string        // metadata[order_id] of the request, or of the intent it names
	After    int           // how many matching requests pass first
	Times    int           // how many are struck; 1 when zero, Always
	Delay    time.Duration // of Slow
}

// An Injection is a Rule at work.
type Injection struct {
	server   *Server
	rule     Rule
	reached  chan struct{}
	released chan struct{}

	// guarded by the server's mutex
	passed int
	struck int
	ended  bool
	later  []func()
}

// Inject makes a fault strike the requests that the rule names, those under
// way aside. It panics on a rule that could never strike: an unknown fault or
// endpoint is a mistake in the test.
func (s *Server) Inject(rule Rule) *Injection {
	if rule.Fault.moment() == nowhere {
		panic(fmt.Sprintf("stripetest: no fault is called %q", rule.Fault))
	}
	if _, ok := s.endpoints[rule.Endpoint]; rule.Endpoint != "" && !ok {
		panic(fmt.Sprintf("stripetest: no endpoint is called %q", rule.Endpoint))
	}
	if (rule.Fault == Slow) != (rule.Delay > 0) {
		panic("stripetest: Delay goes with Slow, and Slow with Delay")
	}
	if rule.Times == 0 {
		rule.Times = 1
	}
	i := &Injection{server: s, rule: rule, reached: make(chan struct{}), released: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, i)
	return i
}

// Reached is closed when the fault has struck for the first time.
func (i *Injection) Reached() <-chan struct{} { return i.reached }

// Triggered returns how many requests were struck.
func (i *Injection) Triggered() int {
	i.server.mu.Lock()
	defer i.server.mu.Unlock()
	return i.struck
}

// Release ends the rule. Requests it holds go on, effects it put off happen
// before Release returns. A second call does nothing.
func (i *Injection) Release() {
	i.server.mu.Lock()
	defer i.server.mu.Unlock()
	if i.ended {
		return
	}
	i.ended = true
	close(i.released)
	for _, run := range i.later {
		run()
	}
	i.later = nil
	i.server.rules = slices.DeleteFunc(i.server.rules, func(other *Injection) bool { return other == i })
}

// A moment is the point on a request's way at which a fault strikes.
type moment int

const (
	nowhere moment = iota
	onArrival
	onLock
	onExecution
	onDelivery
)

func (f Fault) moment() moment {
	switch f {
	case CloseBefore, HoldArrival, RateLimit, Unauthorized, Unavailable, KeyInUse:
		return onArrival
	case LockTimeout:
		return onLock
	case HoldRunning, Slow, ErrorBefore, ErrorAfter, ErrorLater, NextPageError:
		return onExecution
	case CloseAfter, ResetAfter, CutBody, HoldResponse, BadGateway:
		return onDelivery
	}
	return nowhere
}

// waits tells the faults that delay a request from those that settle it. Of
// the latter only one strikes at each moment.
func (f Fault) waits() bool {
	return f == HoldArrival || f == HoldRunning || f == HoldResponse || f == Slow
}

// fails tells the faults that put a 500 in the place of the outcome.
func (f Fault) fails() bool {
	return f.moment() == onExecution && !f.waits()
}

// strike returns the rules that strike a request at this moment, in the order
// of their injection, and records them.
func (s *Server) strike(c *call, at moment) []*Injection {
	var struck []*Injection
	for _, i := range s.rules {
		if i.rule.Fault.moment() != at || !i.matches(c) {
			continue
		}
		if i.passed < i.rule.After {
			i.passed++
			continue
		}
		i.struck++
		if i.struck == 1 {
			close(i.reached)
		}
		c.record.Faults = append(c.record.Faults, i.rule.Fault)
		struck = append(struck, i)
		if !i.rule.Fault.waits() {
			break
		}
	}
	s.rules = slices.DeleteFunc(s.rules, func(i *Injection) bool { return i.struck == i.rule.Times })
	return struck
}

func (i *Injection) matches(c *call) bool {
	later := c.form.values.Has("starting_after") || c.form.values.Has("ending_before") || c.form.values.Has("page")
	return (i.rule.Endpoint == "" || i.rule.Endpoint == c.pattern) &&
		(i.rule.Key == "" || i.rule.Key == c.record.Key) &&
		(i.rule.OrderID == "" || i.rule.OrderID == c.record.OrderID) &&
		(i.rule.Fault != NextPageError || later)
}

// wait keeps a request for as long as its fault says and reports whether it
// may go on. Only a held answer ends with the client: Stripe carries on with
// what it has begun.
func (s *Server) wait(c *call, i *Injection) bool {
	var gone <-chan struct{}
	var done <-chan time.Time
	switch i.rule.Fault {
	case HoldResponse:
		gone = c.request.Context().Done()
	case Slow:
		timer := time.NewTimer(i.rule.Delay)
		defer timer.Stop()
		done = timer.C
	case HoldArrival, HoldRunning:
	default:
		return true
	}
	select {
	case <-done:
		return true
	case <-i.released:
		return true
	case <-gone:
		return false
	case <-s.closing:
		return false
	}
}
