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

// play is one run of a scenario, with its view for the page. After an error, its steps do
// nothing.
type play struct {
	*system
	scenario
	ctx       context.Context
	fail      context.CancelCauseFunc
	request   client.Request
	decisions chan string
	decision  string
	end       state

	killDuringApproval bool

	reading sync.Mutex // the view never gets an older state

	mu           sync.Mutex
	began        time.Time
	providerTime time.Time // of the latest event that may have moved money
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
		decisions: make(chan string, 1),
		began:     now,
		view: view{
			ID:    now.UnixMilli(),
			Key:   string(request.Key),
			Fault: chosen.fault.Title,
			Phase: phaseRunning,
		},
	}
}

const playTimeout = 2 * time.Minute

// run runs the scenario and checks its end state.
func (p *play) run(ctx context.Context) error {
	ctx, stop := context.WithTimeoutCause(ctx, playTimeout, fmt.Errorf("took longer than %s", playTimeout))
	defer stop()
	ctx, p.fail = context.WithCancelCause(ctx)
	p.ctx = ctx
	defer p.fail(nil)
	p.current.Store(p)
	p.step(func() error { return p.ready(ctx) })
	p.update(func(*view) { p.began = time.Now() }) // without the start of the API
	compared := make(chan error, 1)
	if p.compares() {
		p.update(func(v *view) { v.Designs = designViews() })
		go func() { compared <- p.compare(ctx) }()
	} else {
		compared <- nil
	}
	p.verify(p.fault.run(p))
	err := errors.Join(context.Cause(ctx), <-compared)
	p.update(func(v *view) {
		v.Phase, v.Asks = phaseDone, false
		if err != nil {
			v.Phase, v.Error = phaseFailed, err.Error()
		}
	})
	return err
}

func (p *play) step(work func() error) {
	if p.ctx.Err() != nil {
		return
	}
	if err := work(); err != nil {
		p.fail(err)
	}
}

func (p *play) update(change func(*view)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.view)
}

func (p *play) check(text string, ok bool, observed string) {
	p.step(func() error {
		p.update(func(v *view) { v.Checks = append(v.Checks, check{text, ok, observed}) })
		return nil
	})
}

func (p *play) checkProblem(text string, r client.Response, status int, slug string) {
	p.check(text, r.Status == status && problemOf(r) == slug, describe(r))
}

func (p *play) failedChecks() error {
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

func (p *play) pause() { p.step(func() error { return wait(p.ctx, p.Latency) }) }

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *play) announce(r requestView) {
	if len(p.view.Requests) > 0 {
		p.pause()
	}
	p.update(func(v *view) { v.Requests = append(v.Requests, r) })
	p.note(event{Lane: laneClient, Text: "sends: " + strings.ToLower(r.Title[:1]) + r.Title[1:]})
}

func (p *play) send(title string, r client.Request) (response client.Response) {
	p.announce(requestView{Title: title, Curl: curl(p.BaseURL, r)})
	p.step(func() (err error) {
		response, err = p.client.Send(p.ctx, r)
		return err
	})
	return response
}

// sendUntilFinal also waits for the customer's decision.
func (p *play) sendUntilFinal(title string) (final client.Response) {
	p.announce(requestView{Title: title, Curl: curl(p.BaseURL, p.request)})
	var action *client.ActionRequiredError
	p.step(func() (err error) {
		final, err = p.client.Do(p.ctx, p.request)
		var problem *client.Problem
		if errors.As(err, &action) || errors.As(err, &problem) { // a decline is final, too
			return nil
		}
		return err
	})
	if action == nil {
		return final
	}
	p.askCustomer(action.Action)
	return p.sendUntilFinal(afterWindow)
}

const (
	unitAmount = 1250
	quantity   = 2
)

func orderBody(paymentMethod string, quantity int) []byte {
	return fmt.Appendf(nil, `{"email":"ada@example.com","currency":"usd","payment_method":%q,`+
		`"items":[{"sku":"tea","description":"Green tea","quantity":%d,"unit_amount":%d}]}`, paymentMethod, quantity, unitAmount)
}

// curl returns a command line for a shell that has API_KEY.
func curl(base string, r client.Request) string {
	return fmt.Sprintf("curl -i %s \\\n  -H \"Authorization: Bearer $API_KEY\" \\\n  -H 'Content-Type: application/json' \\\n"+
		"  -H %s \\\n  -d %s", base+r.Path, quoted("Idempotency-Key: "+string(r.Key)), quoted(string(r.Body)))
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
