package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/client"
)

// play is one run of a scenario, with its view for the page.
type play struct {
	*system
	scenario
	request   client.Request
	listDue   chan struct{} // has an element when the provider's payments may have changed
	decisions chan string   // of the customer, from the page
	decision  string        // the customer's; used by run only
	end       state         // set by verify

	killDuringApproval bool // of the API process

	reading sync.Mutex // the view never gets an older state

	mu           sync.Mutex
	began        time.Time
	providerTime time.Time      // of the latest event that may have moved money
	dropped      map[string]int // calls that the proxy did not forward, by purpose
	view         view
}

func newPlay(s *system, chosen scenario) *play {
	now := time.Now()
	request := client.Request{
		Key:  client.Key("demo-" + uuid.NewString()),
		Path: "/v1/orders",
		Body: orderBody(chosen.card.ID, quantity),
	}
	return &play{
		system:    s,
		scenario:  chosen,
		request:   request,
		listDue:   make(chan struct{}, 1),
		decisions: make(chan string, 1),
		began:     now,
		dropped:   map[string]int{},
		view: view{
			ID:    now.UnixMilli(),
			Key:   string(request.Key),
			Fault: chosen.fault.Title,
			Phase: phaseRunning,
		},
	}
}

// playTimeout bounds a play, which may wait for the customer and for a lease.
const playTimeout = 2 * time.Minute

// run runs the scenario and checks its end state. The error is also in the view.
func (p *play) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, playTimeout, fmt.Errorf("took longer than %s", playTimeout))
	defer cancel()
	p.current.Store(p)
	err := p.execute(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	p.update(func(v *view) {
		v.Phase, v.Asks = phaseDone, false
		if err != nil {
			v.Phase, v.Error = phaseFailed, err.Error()
		}
	})
	return err
}

func (p *play) execute(ctx context.Context) error {
	if err := p.ready(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.began = time.Now() // without the start of the API
	p.mu.Unlock()

	final, err := p.fault.run(p, ctx)
	if err != nil {
		return err
	}
	return p.verify(ctx, final)
}

func (p *play) update(change func(*view)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.view)
}

func (p *play) check(text string, ok bool, observed string) {
	p.update(func(v *view) { v.Checks = append(v.Checks, check{text, ok, observed}) })
}

func (p *play) checkProblem(text string, r client.Response, status int, slug string) {
	p.check(text, r.Status == status && problemOf(r) == slug, describe(r))
}

func (p *play) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, c := range p.view.Checks {
		if !c.OK {
			err = errors.Join(err, fmt.Errorf("%s: observed %s", c.Text, c.Observed))
		}
	}
	return err
}

func (p *play) pause(ctx context.Context) error { return wait(ctx, p.Latency) }

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// announce adds a request before it is sent.
func (p *play) announce(r requestView, text string) {
	p.update(func(v *view) { v.Requests = append(v.Requests, r) })
	p.note(event{Lane: laneClient, Text: text})
}

func (p *play) announceRequest(title string, r client.Request) {
	p.announce(requestView{Title: title, Curl: curl(p.BaseURL, r)}, "sends: "+strings.ToLower(title[:1])+title[1:])
}

func (p *play) send(ctx context.Context, title string, r client.Request) (client.Response, error) {
	p.announceRequest(title, r)
	return p.client.Send(ctx, r)
}

// sendUntilFinal sends the order until its response is final, also after the customer's
// decision.
func (p *play) sendUntilFinal(ctx context.Context, title string) (client.Response, error) {
	p.announceRequest(title, p.request)
	final, err := p.client.Do(ctx, p.request)
	var action *client.ActionRequiredError
	var problem *client.Problem
	switch {
	case errors.As(err, &action):
		if err := p.askCustomer(ctx, action.Action); err != nil {
			return final, err
		}
		return p.sendUntilFinal(ctx, afterWindow)
	case errors.As(err, &problem): // a decline is final, too
		return final, nil
	default:
		return final, err
	}
}

// The order of every scenario.
const (
	unitAmount = 1250 // of a tea, in cents
	quantity   = 2
)

func orderBody(paymentMethod string, quantity int) []byte {
	return fmt.Appendf(nil, `{"email":"ada@example.com","currency":"usd","payment_method":%q,`+
		`"items":[{"sku":"tea","description":"Green tea","quantity":%d,"unit_amount":%d}]}`, paymentMethod, quantity, unitAmount)
}

// curl returns the command line that sends a request, with API_KEY of the user's shell.
func curl(base string, r client.Request) string {
	return fmt.Sprintf("curl -i %s \\\n  -H \"Authorization: Bearer $API_KEY\" \\\n  -H 'Content-Type: application/json' \\\n"+
		"  -H %s \\\n  -d %s", base+r.Path, quoted("Idempotency-Key: "+string(r.Key)), quoted(string(r.Body)))
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
