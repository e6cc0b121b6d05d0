package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/client"
)

// play is one order and its failure. Its view is what the page shows of it.
type play struct {
	console   *Console
	chosen    choice
	request   client.Request
	ledgerDue chan struct{} // has an element when the provider's intents may have changed
	responses chan string   // the customer's, from the page
	response  string        // the same, received; used by run only

	mu      sync.Mutex
	began   time.Time
	dropped map[string]int // calls that the proxy did not forward, by purpose
	view    view
}

func newPlay(c *Console, chosen choice) *play {
	now := time.Now()
	request := client.Request{
		Key:  client.Key("console-" + uuid.NewString()),
		Path: "/v1/orders",
		Body: orderBody(chosen.card.ID, quantity),
	}
	return &play{
		console:   c,
		chosen:    chosen,
		request:   request,
		ledgerDue: make(chan struct{}, 1),
		responses: make(chan string, 1),
		began:     now,
		dropped:   map[string]int{},
		view: view{
			ID:      now.UnixMilli(),
			Key:     string(request.Key),
			Card:    chosen.card.Title,
			Failure: chosen.failure.Title,
			Phase:   phaseRunning,
		},
	}
}

// run plays the order to its end and verifies the end state.
func (p *play) run(ctx context.Context) error {
	if err := p.console.ready(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.began = time.Now() // without the start of the API
	p.mu.Unlock()

	polling, stop := context.WithCancel(ctx)
	var poller sync.WaitGroup
	poller.Go(func() { p.poll(polling) })
	defer poller.Wait()
	defer stop()
	final, err := p.chosen.failure.play(p, ctx)
	if err != nil {
		return err
	}
	return p.verify(ctx, final)
}

// end records the result of the play.
func (p *play) end(err error) {
	p.update(func(v *view) {
		v.Phase, v.Asks = phaseDone, false
		if err != nil {
			v.Phase, v.Error = phaseFailed, err.Error()
		}
	})
}

// snapshot returns the view as JSON.
func (p *play) snapshot() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return json.Marshal(p.view)
}

// update changes the view and wakes the streams.
func (p *play) update(change func(*view)) {
	p.mu.Lock()
	change(&p.view)
	p.mu.Unlock()
	p.console.changedNow()
}

// since returns the milliseconds from the beginning of the play.
func (p *play) since(at time.Time) int64 { return max(at.Sub(p.began).Milliseconds(), 0) }

// note adds an event at the current time.
func (p *play) note(e event) {
	p.update(func(v *view) {
		e.ID = fmt.Sprintf("%s-%d", e.Lane, len(v.Events))
		e.At = p.since(time.Now())
		v.put(e)
	})
}

// put adds an event in the order of time, or replaces the event with the same id.
func (v *view) put(e event) {
	if i := slices.IndexFunc(v.Events, func(old event) bool { return old.ID == e.ID }); i >= 0 {
		v.Events[i] = e
	} else {
		v.Events = append(v.Events, e)
	}
	slices.SortStableFunc(v.Events, func(a, b event) int { return int(a.At - b.At) })
}

// putOnce adds an event unless there is one with the same id.
func (v *view) putOnce(e event) {
	if !slices.ContainsFunc(v.Events, func(old event) bool { return old.ID == e.ID }) {
		v.put(e)
	}
}

// check adds the result of a check.
func (p *play) check(text string, ok bool, seen string) {
	p.update(func(v *view) { v.Checks = append(v.Checks, check{text, ok, seen}) })
}

// pause gives people time to see what happened.
func (p *play) pause(ctx context.Context) error { return wait(ctx, p.console.ProviderLatency) }

func wait(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// announce adds a request that is about to be sent, and an event for it.
func (p *play) announce(r requestView, text string) {
	p.update(func(v *view) { v.Requests = append(v.Requests, r) })
	p.note(event{Lane: laneClient, Text: text})
}

// send sends a request once.
func (p *play) send(ctx context.Context, title string, r client.Request) (client.Response, error) {
	p.announce(requestView{Title: title, Curl: curl(p.console.base, r)}, "sends: "+lower(title))
	return p.console.client.Send(ctx, r)
}

// sendUntilFinal sends the order until its response is final. If the bank asks, the
// customer responds in between.
func (p *play) sendUntilFinal(ctx context.Context, title string) (client.Response, error) {
	p.announce(requestView{Title: title, Curl: curl(p.console.base, p.request)}, "sends: "+lower(title))
	for {
		answer, err := p.console.client.Send(ctx, p.request)
		switch {
		case err != nil:
			return answer, err
		case answer.Status == http.StatusAccepted:
			if err := p.askCustomer(ctx, answer); err != nil {
				return answer, err
			}
			p.announce(requestView{Title: afterWindow, Curl: curl(p.console.base, p.request)}, "sends: "+lower(afterWindow))
		case answer.RetryAfter() == 0: // a failure is final too
			return answer, nil
		default:
			if err := wait(ctx, answer.RetryAfter()); err != nil {
				return answer, err
			}
		}
	}
}

func lower(title string) string { return strings.ToLower(title[:1]) + title[1:] }
