package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/client"
)

// play is one run of a scenario, with its view for the page. After an error, its remaining steps do
// nothing.
type play struct {
	*system
	scenario
	ctx       context.Context
	fail      context.CancelCauseFunc
	began     time.Time
	request   client.Request
	decisions chan string
	decision  string

	killDuringApproval bool

	observing sync.Mutex // held from the read of a state to its record, so that states are recorded in order

	mu    sync.Mutex
	state state // the latest
	sent  []sentRequest
	view  view
}

// view is what the page gets as JSON.
type view struct {
	ID      int64        `json:"id"`
	Key     string       `json:"key"`
	Fault   string       `json:"fault"`
	Phase   string       `json:"phase"`
	Error   string       `json:"error"`
	Asks    bool         `json:"asks"`
	Steps   []rowStep    `json:"steps"`
	Designs []designView `json:"designs"`
	Events  []event      `json:"events"`
	Checks  []check      `json:"checks"`
}

// rowStep is the key's row after an event, in the columns that docs/how-it-works.md shows.
type rowStep struct {
	Event   string   `json:"event"`
	Columns []column `json:"columns"`
}

type column struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

const (
	phaseRunning = "running"
	phaseDone    = "done" // all checks were made, even if some did not hold
	phaseFailed  = "failed"
)

type event struct {
	ID     string  `json:"id"`
	At     float64 `json:"at"` // milliseconds since the beginning
	Lane   string  `json:"lane"`
	Kind   string  `json:"kind"`
	Text   string  `json:"text"`
	Detail string  `json:"detail"`
}

const (
	laneClient   = "client"
	laneRow      = "row"
	laneProvider = "provider"
	laneMail     = "mail"

	// The kinds of events. Other events have the kind "".
	kindPoint  = "point"
	kindFault  = "fault"
	kindRepair = "repair"
	kindMoney  = "money"
)

type check struct {
	Text     string `json:"text"`
	OK       bool   `json:"ok"`
	Observed string `json:"observed"`
}

type sentRequest struct {
	title      string
	concurrent bool
	responses  []string
}

func newPlay(s *system, chosen scenario) *play {
	now := time.Now()
	key := client.Key("demo-" + uuid.NewString())
	return &play{
		system:    s,
		scenario:  chosen,
		began:     now,
		request:   client.Request{Key: key, Path: "/v1/orders", Body: orderBody(chosen.card.ID, quantity)},
		decisions: make(chan string, 1),
		view:      view{ID: now.UnixMilli(), Key: string(key), Fault: chosen.fault.Title, Phase: phaseRunning},
	}
}

const (
	unitAmount = 1250
	quantity   = 2
)

func orderBody(paymentMethod string, quantity int) []byte {
	return fmt.Appendf(nil, `{"email":"ada@example.com","currency":"usd","payment_method":%q,`+
		`"items":[{"sku":"tea","description":"Green tea","quantity":%d,"unit_amount":%d}]}`, paymentMethod, quantity, unitAmount)
}

const playTimeout = 2 * time.Minute

// run runs the scenario and checks its end state. The error also reports failed checks.
func (p *play) run(ctx context.Context) error {
	ctx, stop := context.WithTimeoutCause(ctx, playTimeout, fmt.Errorf("took longer than %s", playTimeout))
	defer stop()
	ctx, p.fail = context.WithCancelCause(ctx)
	p.ctx = ctx
	defer p.fail(nil)
	p.current.Store(p)
	p.step(func() error { return p.ready(ctx) })
	p.update(func(*view) { p.began = time.Now() }) // the time does not include the start of the API
	compared := make(chan error, 1)
	if p.compares() {
		p.update(func(v *view) { v.Designs = designViews() })
		go func() { compared <- p.compare(ctx) }()
	} else {
		compared <- nil
	}
	p.verify(p.fault.run(p))
	err := errors.Join(context.Cause(ctx), <-compared)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view.Phase, p.view.Asks = phaseDone, false
	if err != nil {
		p.view.Phase, p.view.Error = phaseFailed, err.Error()
	}
	for _, c := range p.view.Checks {
		if !c.OK {
			err = errors.Join(err, fmt.Errorf("%s: observed %s", c.Text, c.Observed))
		}
	}
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

func (p *play) note(e event) { p.update(func(*view) { p.add(e) }) }

// record reads the state, adds events for its changes since the last read, and then adds e.
func (p *play) record(e event) (id string) {
	_, _ = p.observe(func() { id = p.add(e) }) // before the claim there is no row to read
	return id
}

// amend replaces the event of a call when the call has ended, and adds events for the changes of the state.
func (p *play) amend(id string, e event) {
	_, _ = p.observe(func() {
		if i := slices.IndexFunc(p.view.Events, func(old event) bool { return old.ID == id }); i >= 0 {
			e.ID, e.At = id, p.view.Events[i].At
			p.view.Events[i] = e
		}
	})
}

// observe reads the state of the order, adds an event for each change since the last read, and then calls
// add for the event of its caller. After the end of the play, it does nothing.
func (p *play) observe(add func()) (s state, err error) {
	if p == nil || p.ctx.Err() != nil {
		return s, nil
	}
	p.observing.Lock()
	defer p.observing.Unlock()
	s, err = p.readState(p.ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	cause := ""
	if err == nil {
		cause = p.addChanges(s)
		p.showDesign()
	}
	add()
	steps := p.view.Steps
	if columns := s.columns(); err == nil && (len(steps) == 0 || !slices.Equal(steps[len(steps)-1].Columns, columns)) {
		p.view.Steps = append(steps, rowStep{cmp.Or(cause, p.view.Events[len(p.view.Events)-1].ID), columns})
	}
	return s, err
}

// add adds an event and returns its id. A fault that repeats the last event adds none.
func (p *play) add(e event) (id string) {
	events := p.view.Events
	if n := len(events); n > 0 && e.Kind == kindFault && events[n-1].Text == e.Text {
		return events[n-1].ID
	}
	e.ID, e.At = strconv.Itoa(len(events)), float64(time.Since(p.began).Microseconds())/1000
	p.view.Events = append(events, e)
	return e.ID
}

func (p *play) check(text string, ok bool, observed string) {
	p.step(func() error {
		p.update(func(v *view) { v.Checks = append(v.Checks, check{text, ok, observed}) })
		return nil
	})
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

func (p *play) announce(r sentRequest) {
	if len(p.sent) > 0 {
		p.pause()
	}
	p.update(func(*view) { p.sent = append(p.sent, r) })
	p.note(event{Lane: laneClient, Text: "sends: " + strings.ToLower(r.title[:1]) + r.title[1:]})
}

func (p *play) send(title string, r client.Request) (response client.Response) {
	p.announce(sentRequest{title: title})
	p.step(func() (err error) {
		response, err = p.client.Send(p.ctx, r)
		return err
	})
	return response
}

// sendUntilFinal sends the request until its response is final. If the customer must approve, it waits for
// the decision and sends the request again.
func (p *play) sendUntilFinal(title string) (final client.Response) {
	p.announce(sentRequest{title: title})
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

// responded records a response of the API, or its absence.
func (p *play) responded(r client.Response) {
	var concurrent bool
	p.update(func(*view) {
		last := &p.sent[len(p.sent)-1]
		last.responses = append(last.responses, describe(r))
		concurrent = last.concurrent // concurrent requests share one event
	})
	if concurrent {
		return
	}
	e := event{Lane: laneClient, Text: fmt.Sprintf("gets %d", r.Status), Detail: textOf(r)}
	if r.Status == 0 {
		e.Kind, e.Text, e.Detail = kindFault, "gets no response", "the connection broke"
	}
	if after := r.RetryAfter(); after > 0 {
		e.Detail += fmt.Sprintf(", retry after %d s", int(after.Seconds()))
	}
	p.record(e)
}

func describe(r client.Response) string {
	if r.Status == 0 {
		return "no response"
	}
	return fmt.Sprintf("%d %s", r.Status, textOf(r))
}

func textOf(r client.Response) string {
	text := problemOf(r)
	switch {
	case r.Status == http.StatusAccepted:
		text = "requires_action"
	case text == "":
		text = strings.ToLower(http.StatusText(r.Status))
	}
	if r.Replayed() {
		text += ", replayed"
	}
	return text
}

func problemOf(r client.Response) string {
	var problem client.Problem
	if json.Unmarshal(r.Body, &problem) != nil {
		return ""
	}
	return strings.TrimPrefix(problem.Type, "/problems/")
}

// summary returns the responses, such as "no response, 4 × 409 (in progress), 201". It omits the last
// one, the replay that verify requests.
func (p *play) summary() string {
	short := strings.NewReplacer(" created", "", ", replayed", " replayed", "idempotency-key-in-progress", "(in progress)")
	counts := map[string]int{}
	var texts []string
	for _, request := range p.sent[:len(p.sent)-1] {
		for _, response := range request.responses {
			text := short.Replace(response)
			if counts[text]++; counts[text] == 1 {
				texts = append(texts, text)
			}
		}
	}
	for i, text := range texts {
		if n := counts[text]; n > 1 {
			texts[i] = fmt.Sprintf("%d × %s", n, text)
		}
	}
	return strings.Join(texts, ", ")
}
