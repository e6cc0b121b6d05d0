package stripetest

import (
	"fmt"
	"slices"
	"time"
)

// A Fault is a failure of a request.
type Fault string

// Faults before validation: no effect, nothing stored.
const (
	// CloseBefore closes the connection: EOF.
	CloseBefore Fault = "close-before"
	// HoldArrival delays the request until Release, so it arrives after later requests.
	HoldArrival Fault = "hold-arrival"
	// RateLimit returns 429 rate_limit.
	RateLimit Fault = "rate-limit"
	// Unauthorized returns 401.
	Unauthorized Fault = "unauthorized"
	// Unavailable returns 503 with HTML, as a proxy does.
	Unavailable Fault = "unavailable"
	// KeyInUse returns 409 idempotency_key_in_use.
	KeyInUse Fault = "key-in-use"
)

// Faults before the effect of a valid request. A replay triggers none.
const (
	// LockTimeout returns 429 lock_timeout: no effect, nothing stored.
	LockTimeout Fault = "lock-timeout"
	// HoldRunning delays the effect until Release, also if the client disconnects.
	// Until then the key is in flight and the intent is locked.
	HoldRunning Fault = "hold-running"
	// Slow delays the effect by Rule.Delay in the same way.
	Slow Fault = "slow"
	// ErrorBefore returns and stores 500 without the effect.
	ErrorBefore Fault = "error-before"
	// ErrorAfter returns and stores 500 after the effect.
	ErrorAfter Fault = "error-after"
	// AccountNotReady returns 400 without the effect: the account has no payment method
	// for the currency. The 400 is stored; Stripe does not document whether it is.
	AccountNotReady Fault = "account-not-ready"
	// ErrorLater returns and stores 500. The effect follows on Release; Stripe calls
	// this rolling forward.
	ErrorLater Fault = "error-later"
	// NoSearch returns 400 for a search, because Stripe does not offer it to every account.
	NoSearch Fault = "no-search"
	// NextPageError returns 500 for every page of a list except the first.
	NextPageError Fault = "next-page-error"
)

// Faults after the effect. The key stores the response, which the client does not get.
const (
	// CloseAfter closes the connection: EOF.
	CloseAfter Fault = "close-after"
	// ResetAfter resets the connection: ECONNRESET.
	ResetAfter Fault = "reset-after"
	// CutBody closes the connection within the body: unexpected EOF.
	CutBody Fault = "cut-body"
	// HoldResponse sends nothing until Release, or until the client disconnects.
	HoldResponse Fault = "hold-response"
	// BadGateway returns 502 with HTML, as a proxy does.
	BadGateway Fault = "bad-gateway"
)

// Always as Rule.Times removes the limit.
const Always = -1

// A Rule selects the requests that trigger a fault. Empty conditions match every
// request.
type Rule struct {
	Fault    Fault
	Endpoint string        // as in "POST /v1/payment_intents/{id}/confirm"
	Key      string        // the Idempotency-Key
	OrderID  string        // metadata[order_id] of the request, or of the intent it names
	After    int           // how many matching requests pass first
	Times    int           // how often the fault is triggered; 0 means 1
	Delay    time.Duration // of Slow
}

// An Injection is an active Rule.
type Injection struct {
	server   *Server
	rule     Rule
	reached  chan struct{}
	released chan struct{}

	passed    int
	triggered int
	ended     bool
	later     []func()
}

// Inject adds a rule for later requests. It panics if the rule can never match.
func (s *Server) Inject(rule Rule) *Injection {
	if rule.Fault.stage() == noStage {
		panic(fmt.Sprintf("stripetest: unknown fault %q", rule.Fault))
	}
	if _, ok := s.endpoints[rule.Endpoint]; rule.Endpoint != "" && !ok {
		panic(fmt.Sprintf("stripetest: unknown endpoint %q", rule.Endpoint))
	}
	if (rule.Fault == Slow) != (rule.Delay > 0) {
		panic("stripetest: Slow requires Delay, and no other fault has one")
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

// Reached is closed when the fault is triggered for the first time.
func (i *Injection) Reached() <-chan struct{} { return i.reached }

// Triggered returns how often the fault was triggered.
func (i *Injection) Triggered() int {
	i.server.mu.Lock()
	defer i.server.mu.Unlock()
	return i.triggered
}

// Release ends the rule. Held requests continue, and ErrorLater has its effect before
// Release returns. A second call does nothing.
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

// A stage is the point in a request's processing at which a fault is triggered.
type stage int

const (
	noStage stage = iota
	onArrival
	onLock
	onExecution
	onDelivery
)

func (f Fault) stage() stage {
	switch f {
	case CloseBefore, HoldArrival, RateLimit, Unauthorized, Unavailable, KeyInUse:
		return onArrival
	case LockTimeout:
		return onLock
	case HoldRunning, Slow, ErrorBefore, AccountNotReady, ErrorAfter, ErrorLater, NoSearch, NextPageError:
		return onExecution
	case CloseAfter, ResetAfter, CutBody, HoldResponse, BadGateway:
		return onDelivery
	}
	return noStage
}

func (f Fault) waits() bool {
	return f == HoldArrival || f == HoldRunning || f == HoldResponse || f == Slow
}

func (f Fault) fails() bool {
	return f.stage() == onExecution && !f.waits()
}

// trigger returns the matching rules of a stage, at most one of which ends the request.
func (s *Server) trigger(c *call, at stage) []*Injection {
	var triggered []*Injection
	for _, i := range s.rules {
		if i.rule.Fault.stage() != at || !i.matches(c) {
			continue
		}
		if i.passed < i.rule.After {
			i.passed++
			continue
		}
		i.triggered++
		if i.triggered == 1 {
			close(i.reached)
		}
		c.record.Faults = append(c.record.Faults, i.rule.Fault)
		triggered = append(triggered, i)
		if !i.rule.Fault.waits() {
			break
		}
	}
	s.rules = slices.DeleteFunc(s.rules, func(i *Injection) bool { return i.triggered == i.rule.Times })
	return triggered
}

func (i *Injection) matches(c *call) bool {
	return (i.rule.Endpoint == "" || i.rule.Endpoint == c.pattern) &&
		(i.rule.Key == "" || i.rule.Key == c.record.Key) &&
		(i.rule.OrderID == "" || i.rule.OrderID == c.record.OrderID) &&
		(i.rule.Fault != NoSearch || c.pattern == searchIntents) &&
		(i.rule.Fault != NextPageError || c.form.values.Has("starting_after"))
}

// wait delays a request and reports whether it continues. Only a held response ends
// when the client disconnects: Stripe completes what it started.
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
