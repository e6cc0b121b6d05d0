package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/wire"
)

// play is one order, with what goes wrong with it. What it finds out it writes
// into its view.
type play struct {
	console   *Console
	chosen    choice
	request   client.Request
	ledgerDue chan struct{} // has one when the provider's ledger may have changed

	mu      sync.Mutex
	began   time.Time
	refused map[string]int // calls that a cut line did not let through, by purpose
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
		began:     now,
		refused:   map[string]int{},
		view: view{
			ID:      now.UnixMilli(),
			Key:     string(request.Key),
			Card:    chosen.card.Title,
			Failure: chosen.failure.Title,
			Phase:   phaseRunning,
		},
	}
}

// run plays it to its end, and looks what came of it.
func (p *play) run(ctx context.Context) error {
	if err := p.console.ready(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.began = time.Now() // not before there was somebody to order from
	p.mu.Unlock()

	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { p.watch(watching) })
	defer watcher.Wait()
	defer stop()
	final, err := p.chosen.failure.play(p, ctx)
	if err != nil {
		return err
	}
	return p.settle(ctx, final)
}

// end closes the view.
func (p *play) end(err error) {
	p.update(func(v *view) {
		v.Phase = phaseDone
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

// since is a moment as the view has it.
func (p *play) since(at time.Time) int64 { return max(at.Sub(p.began).Milliseconds(), 0) }

// note adds an event that happens now.
func (p *play) note(e event) {
	p.update(func(v *view) {
		e.ID = fmt.Sprintf("%s-%d", e.Lane, len(v.Events))
		e.At = p.since(time.Now())
		v.put(e)
	})
}

// put adds an event in the order of time, or replaces the one of its id.
func (v *view) put(e event) {
	if i := slices.IndexFunc(v.Events, func(old event) bool { return old.ID == e.ID }); i >= 0 {
		v.Events[i] = e
	} else {
		v.Events = append(v.Events, e)
	}
	slices.SortStableFunc(v.Events, func(a, b event) int { return int(a.At - b.At) })
}

// putOnce adds an event unless it is there.
func (v *view) putOnce(e event) {
	if !slices.ContainsFunc(v.Events, func(old event) bool { return old.ID == e.ID }) {
		v.put(e)
	}
}

// check adds what was seen at the end.
func (p *play) check(text string, ok bool, seen string) {
	p.update(func(v *view) { v.Checks = append(v.Checks, check{text, ok, seen}) })
}

// pause is for people, who see otherwise only that something was.
func (p *play) pause(ctx context.Context) error {
	select {
	case <-time.After(p.console.Pace):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// announce adds a request that is about to be sent, and an event that says so.
func (p *play) announce(r requestView, text string) {
	p.update(func(v *view) { v.Requests = append(v.Requests, r) })
	p.note(event{Lane: laneClient, Text: text})
}

// send sends a request once.
func (p *play) send(ctx context.Context, title string, r client.Request) (client.Answer, error) {
	p.announce(requestView{Title: title, Curl: curl(p.console.base, r)}, "sends: "+lower(title))
	return p.console.shop.Send(ctx, r)
}

// sendUntilFinal sends the order until its answer is final.
func (p *play) sendUntilFinal(ctx context.Context, title string) (client.Answer, error) {
	p.announce(requestView{Title: title, Curl: curl(p.console.base, p.request)}, "sends: "+lower(title))
	answer, err := p.console.shop.Do(ctx, p.request)
	var problem *client.Problem
	if errors.As(err, &problem) { // a no is final, too
		err = nil
	}
	return answer, err
}

func lower(title string) string { return strings.ToLower(title[:1]) + title[1:] }

// noteAnswer adds an answer to the request that is on.
func (p *play) noteAnswer(e client.Exchange) {
	now := time.Now()
	p.update(func(v *view) {
		request := &v.Requests[len(v.Requests)-1]
		a := answerView{
			At:         p.since(now),
			Status:     e.Answer.Status,
			Text:       describe(e.Answer),
			RetryAfter: int(e.Answer.RetryAfter() / time.Second),
			Replayed:   e.Answer.Replayed(),
		}
		request.Answers = append(request.Answers, a)
		request.Body = string(e.Answer.Body)
		if request.Many {
			return // one event for all of them
		}
		got := event{
			ID: fmt.Sprintf("answer-%d-%d", len(v.Requests), len(request.Answers)), At: a.At,
			Lane: laneClient, Text: fmt.Sprintf("gets %d", a.Status), Detail: a.Text,
		}
		if a.Status == 0 {
			got.Kind, got.Text, got.Detail = kindFault, "gets no answer", "the connection broke"
		}
		if a.RetryAfter > 0 {
			got.Detail += fmt.Sprintf(", again after %d s", a.RetryAfter)
		}
		v.put(got)
	})
}

// describe puts an answer into a few words. Its zero value is none.
func describe(a client.Answer) string {
	if a.Status == 0 {
		return "no answer"
	}
	text := problemOf(a)
	if text == "" {
		text = strings.ToLower(http.StatusText(a.Status))
	}
	if a.Replayed() {
		text += ", replayed"
	}
	return text
}

// problemOf returns the slug of a problem, "" when an answer is none.
func problemOf(a client.Answer) string {
	var problem client.Problem
	if json.Unmarshal(a.Body, &problem) != nil {
		return ""
	}
	return strings.TrimPrefix(problem.Type, "/problems/")
}

// noteCall shows a call to the provider.
func (p *play) noteCall(call wire.Call) {
	e := event{ID: fmt.Sprintf("call-%d", call.Number), Lane: laneProvider}
	var what string
	e.Text, what = purpose(call)
	switch {
	case call.Took == 0:
		e.Detail = what + " …"
	case call.Lost && call.Status == 0:
		p.noteRefused(e, call)
		return
	case call.Lost:
		e.Kind = kindFault
		e.Detail = fmt.Sprintf("%s: %d, but the line is cut and the answer lost", what, call.Status)
	default:
		e.Detail = fmt.Sprintf("%s: %d after %d ms", what, call.Status, call.Took.Milliseconds())
	}
	if call.Status >= http.StatusInternalServerError {
		e.Kind = kindFault
	}
	p.update(func(v *view) {
		e.At = p.since(call.At)
		v.put(e)
	})
	if call.Took > 0 {
		select {
		case p.ledgerDue <- struct{}{}:
		default: // it is due already
		}
	}
}

// noteRefused shows a call that a cut line did not let through, together with those
// before it for the same purpose: the API tries again and again.
func (p *play) noteRefused(e event, call wire.Call) {
	p.update(func(v *view) {
		v.Events = slices.DeleteFunc(v.Events, func(old event) bool { return old.ID == e.ID })
		p.refused[e.Text]++
		e.ID, e.Kind, e.At = "refused-"+e.Text, kindFault, p.since(call.At)
		e.Detail = "does not get through"
		if n := p.refused[e.Text]; n > 1 {
			e.Detail += fmt.Sprintf(", %d times", n)
		}
		v.put(e)
	})
}

// purpose says what a call to the provider does, and what that means.
func purpose(call wire.Call) (text, what string) {
	path := strings.TrimPrefix(call.Path, "/v1/payment_intents")
	switch {
	case call.Method == http.MethodPost && path == "":
		return "create the intent", "no money moves"
	case strings.HasSuffix(path, "/confirm"):
		return "confirm the intent", "charge the card"
	case strings.HasSuffix(path, "/cancel"):
		return "cancel the intent", "so that it can never be charged"
	case path == "":
		return "list the intents", "is ours among them"
	default:
		return "read the intent", "what became of it"
	}
}
