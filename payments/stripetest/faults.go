package stripetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Fault is a failure of a request.
type Fault string

// Faults before validation: no effect, and nothing is stored.
const (
	CloseBefore  Fault = "close-before" // EOF
	HoldArrival  Fault = "hold-arrival" // until Release, so it arrives after later requests
	RateLimit    Fault = "rate-limit"   // 429
	Unauthorized Fault = "unauthorized" // 401
	Forbidden    Fault = "forbidden"    // 403, as for a restricted key
	Unavailable  Fault = "unavailable"  // 503 in HTML, as from a proxy
	KeyInUse     Fault = "key-in-use"   // 409
)

// Faults before the effect of a valid request. A replay triggers none.
const (
	LockTimeout   Fault = "lock-timeout"    // 429, also of a read; nothing is stored
	HoldRunning   Fault = "hold-running"    // until Release; the key is in flight, the intent locked
	Slow          Fault = "slow"            // the same for Rule.Delay
	ErrorBefore   Fault = "error-before"    // 500, stored, without the effect
	ErrorAfter    Fault = "error-after"     // 500, stored, after the effect
	ErrorLater    Fault = "error-later"     // 500, stored; the effect follows on Release ("rolled forward")
	NextPageError Fault = "next-page-error" // 500 for each page of a list but the first
	NoSearch      Fault = "no-search"       // 400: Stripe does not offer the search to every account

	// AccountNotReady is a 400, stored: no payment method is activated for the currency.
	AccountNotReady Fault = "account-not-ready"

	// BalanceTooLow is a 400, stored, of a refund: the account's balance does not cover it.
	BalanceTooLow Fault = "balance-too-low"
)

// Faults after the effect. The response is stored, but does not reach the client.
const (
	CloseAfter   Fault = "close-after"   // EOF
	ResetAfter   Fault = "reset-after"   // ECONNRESET
	CutBody      Fault = "cut-body"      // unexpected EOF
	HoldResponse Fault = "hold-response" // until Release, or until the client disconnects
	BadGateway   Fault = "bad-gateway"   // 502 in HTML, as from a proxy
)

// Always is a value of Rule.Times.
const Always = -1

// A Rule selects the requests that trigger a fault; an empty condition matches all.
type Rule struct {
	Fault    Fault
	Endpoint string // as in "POST /v1/payment_intents/{id}/confirm"
	Key      string
	OrderID  string
	After    int           // how many matching requests pass first
	Times    int           // 0 means 1
	Delay    time.Duration // of Slow
}

// An Injection is an active Rule.
type Injection struct {
	behaviour
	server   *Server
	rule     Rule
	reached  chan struct{}
	released chan struct{}

	triggered int
	ended     bool
	later     []func()
}

// Inject adds a rule for later requests. It panics if the rule can never match.
func (s *Server) Inject(rule Rule) *Injection {
	_, known := s.endpoints[rule.Endpoint]
	behaviour, valid := behaviours[rule.Fault]
	if !valid || rule.Endpoint != "" && !known || (rule.Fault == Slow) != (rule.Delay > 0) {
		panic(fmt.Sprintf("stripetest: invalid rule %+v", rule))
	}
	rule.Times = cmp.Or(rule.Times, 1)
	i := &Injection{behaviour: behaviour, server: s, rule: rule, reached: make(chan struct{}), released: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, i)
	return i
}

// Reached is closed when the fault is triggered first.
func (i *Injection) Reached() <-chan struct{} { return i.reached }

// Triggered returns how often the fault was triggered.
func (i *Injection) Triggered() int {
	i.server.mu.Lock()
	defer i.server.mu.Unlock()
	return i.triggered
}

// Release ends the rule: held requests continue, and ErrorLater has its effect.
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
	i.server.rules = slices.DeleteFunc(i.server.rules, func(other *Injection) bool { return other == i })
}

type stage int

const (
	onArrival stage = iota + 1
	onLock
	onExecution
	onDelivery
)

type behaviour struct {
	stage   stage
	waits   bool
	refusal func(*call) *apiError
}

var behaviours = map[Fault]behaviour{
	CloseBefore:     {stage: onArrival},
	HoldArrival:     {stage: onArrival, waits: true},
	RateLimit:       {stage: onArrival, refusal: rateLimited},
	Unauthorized:    {stage: onArrival, refusal: invalidKey},
	Forbidden:       {stage: onArrival, refusal: forbidden},
	Unavailable:     {stage: onArrival},
	KeyInUse:        {stage: onArrival, refusal: keyInUse},
	LockTimeout:     {stage: onLock, refusal: lockTimeout},
	HoldRunning:     {stage: onExecution, waits: true},
	Slow:            {stage: onExecution, waits: true},
	ErrorBefore:     {stage: onExecution, refusal: serverError},
	ErrorAfter:      {stage: onExecution, refusal: serverError},
	ErrorLater:      {stage: onExecution, refusal: serverError},
	NextPageError:   {stage: onExecution, refusal: serverError},
	NoSearch:        {stage: onExecution, refusal: searchNotOffered},
	AccountNotReady: {stage: onExecution, refusal: accountNotReady},
	BalanceTooLow:   {stage: onExecution, refusal: balanceTooLow},
	CloseAfter:      {stage: onDelivery},
	ResetAfter:      {stage: onDelivery},
	CutBody:         {stage: onDelivery},
	HoldResponse:    {stage: onDelivery, waits: true},
	BadGateway:      {stage: onDelivery},
}

// trigger returns the matching rules of a stage. At most one of them ends the request.
func (s *Server) trigger(c *call, at stage) []*Injection {
	var triggered []*Injection
	for _, i := range s.rules {
		if i.stage != at || !i.matches(c) {
			continue
		}
		if i.rule.After > 0 {
			i.rule.After--
			continue
		}
		i.triggered++
		if i.triggered == 1 {
			close(i.reached)
		}
		c.record.Faults = append(c.record.Faults, i.rule.Fault)
		triggered = append(triggered, i)
		if !i.waits {
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
		(i.rule.Fault != BalanceTooLow || c.pattern == makeRefund) &&
		(i.rule.Fault != NextPageError || c.form.values.Has("starting_after"))
}

// wait ends early only for a held response whose client disconnects, because Stripe completes a
// request that it has started.
func (s *Server) wait(c *call, i *Injection) {
	if !i.waits {
		return
	}
	var gone <-chan struct{}
	if i.rule.Fault == HoldResponse {
		gone = c.request.Context().Done()
	}
	var elapsed <-chan time.Time
	if i.rule.Fault == Slow {
		elapsed = time.After(i.rule.Delay)
	}
	select {
	case <-elapsed:
	case <-i.released:
	case <-gone:
		abort()
	case <-s.closing:
		abort()
	}
}
