package demo

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

type card struct {
	ID    string
	Title string
	Pays  bool
	Asks  bool // the customer must approve each payment; only the fake can simulate that
}

func cards() []card {
	return []card{
		{"pm_card_visa", "Visa 4242: pays", true, false},
		{"pm_card_mastercard", "Mastercard 4444: pays", true, false},
		{"pm_card_visa_chargeDeclinedInsufficientFunds", "Visa 9995: declined, insufficient funds", false, false},
		{"pm_card_threeDSecure2Required", "Visa 3220: pays if you approve", false, true},
	}
}

type fault struct {
	ID        string
	Title     string
	Story     string
	NeedsFake bool
	run       func(*play) client.Response
	earlier   *failure // nil if this fault does not run the earlier designs
}

// failure is the fault as an earlier design meets it.
type failure struct {
	atProvider stripetest.Fault // the fault of the first call; "" for none
	later      time.Duration    // how long the client waits before it retries
}

func faults() []fault {
	return []fault{
		{"none", "No failure", "Paid or declined is final. Waiting for your approval is not.", false, (*play).order, &failure{}},
		{"repeat", "The same request again", "The client sends the order twice, as after a timeout.", false, (*play).repeat, &failure{}},
		{"concurrent", "20 concurrent requests", "The same request with one key, 20 times at once.", false, (*play).concurrent, nil},
		{"other", "Another body", "After the order, the client sends another one with its key.", false, (*play).otherBody, nil},
		{
			"lost", "The response is lost", "The connection breaks right after the charge. The API returns 503.", false,
			(*play).lostResponse, &failure{stripetest.CloseAfter, 0},
		},
		{
			"killed", "The process is killed", "SIGKILL right after the charge, or while the customer approves.", false,
			(*play).killed, &failure{stripetest.HoldResponse, 0},
		},
		{
			"error", "The provider returns 500", "After the charge, and it stores the 500 under its key, as Stripe does.", true,
			(*play).storedError, &failure{stripetest.ErrorAfter, 0},
		},
		{
			"late", "A retry after 25 hours", "The response is lost, and Stripe has deleted its key by then.", true,
			(*play).lateRetry, &failure{stripetest.CloseAfter, later},
		},
	}
}

const (
	approves = "approve"
	declines = "decline"
)

type scenario struct {
	card     card
	fault    fault
	customer string // the customer's decision; "" waits for a decision on the page
	claim    string // the line of the tour; "" on the console
}

func (o Options) choose(cardID, faultID string) (scenario, error) {
	allCards, allFaults := cards(), faults()
	i := slices.IndexFunc(allCards, func(k card) bool { return k.ID == cardID })
	j := slices.IndexFunc(allFaults, func(f fault) bool { return f.ID == faultID })
	switch {
	case i < 0:
		return scenario{}, fmt.Errorf("there is no card %q", cardID)
	case j < 0:
		return scenario{}, fmt.Errorf("there is no fault %q", faultID)
	case allCards[i].Asks && o.Fake == nil:
		return scenario{}, errNeedsFake{"at Stripe, only a browser can approve"}
	case allFaults[j].NeedsFake && o.Fake == nil:
		return scenario{}, errNeedsFake{"Stripe does not fail on demand"}
	}
	return scenario{card: allCards[i], fault: allFaults[j]}, nil
}

type errNeedsFake struct{ reason string }

func (e errNeedsFake) Error() string { return "needs the fake Stripe: " + e.reason }

const concurrency = 20

const (
	firstTime   = "The order"
	again       = "The same request again"
	afterWindow = "The same request after the customer’s decision"
)

func (p *play) order() client.Response { return p.sendUntilFinal(firstTime) }

func (p *play) repeat() client.Response {
	first := p.order()
	p.sendReplay(first, again)
	return first
}

func (p *play) sendReplay(first client.Response, title string) {
	second := p.send(title, p.request)
	p.check(title+": the same bytes", second.Replayed() && second.Status == first.Status && bytes.Equal(second.Body, first.Body),
		fmt.Sprintf("%s, %d bytes", describe(second), len(second.Body)))
}

func (p *play) concurrent() (final client.Response) {
	p.announce(sentRequest{title: "20 concurrent requests", concurrent: true})
	responses := make([]client.Response, concurrency)
	p.step(func() error {
		errs := make([]error, concurrency)
		var group sync.WaitGroup
		for i := range concurrency {
			group.Go(func() { responses[i], errs[i] = p.client.Send(p.ctx, p.request) })
		}
		group.Wait()
		return errors.Join(errs...)
	})
	p.note(event{Lane: laneClient, Text: fmt.Sprintf("has all %d responses", concurrency)})

	var executed, replayed, retryLater int
	for _, r := range responses {
		switch {
		case r.RetryAfter() > 0: // 409, or the 503 or 202 of the run that claimed the key
			retryLater++
		case r.Replayed():
			replayed++
		default:
			executed++
			final = r
		}
	}
	if executed == 0 { // the run that claimed the key has no final outcome yet
		final = p.sendUntilFinal(again)
		executed, retryLater = 1, retryLater-1
	}
	equal := true
	for _, r := range responses {
		equal = equal && (!r.Replayed() || bytes.Equal(r.Body, final.Body))
	}
	p.check("One of the 20 requests was executed", executed == 1 && equal,
		fmt.Sprintf("%d executed, %d replayed, %d with Retry-After", executed, replayed, retryLater))
	return final
}

func (p *play) otherBody() client.Response {
	final := p.order()
	other := p.request
	other.Body = orderBody(p.card.ID, 100*quantity)
	rejected := p.send("Another order with the same key", other)
	p.check("The other body was rejected",
		rejected.Status == http.StatusUnprocessableEntity && problemOf(rejected) == "idempotency-key-reused", describe(rejected))
	return final
}

var errNoConfirm = errors.New("the API did not confirm the payment")

func (p *play) lostResponse() client.Response {
	p.loseResponse()
	return p.sendUntilFinal(again)
}

func (p *play) loseResponse() {
	lost := p.proxy.loseResponse()
	defer p.proxy.restore()
	response := p.send(firstTime, p.request)
	p.check("The API reported an unknown outcome",
		response.Status == http.StatusServiceUnavailable && problemOf(response) == "payment-outcome-unknown", describe(response))
	select {
	case status := <-lost:
		p.check("The provider’s response was lost", status != 0, fmt.Sprintf("its %d was dropped", status))
	default:
		p.fail(errNoConfirm)
	}
	p.note(event{Lane: laneProvider, Kind: kindRepair, Text: "the connection is restored"})
}

const later = 25 * time.Hour

// lateRetry retries after the provider has deleted its keys. It moves the fake's clock only during the
// retry, because other clients use the same fake.
func (p *play) lateRetry() client.Response {
	p.loseResponse()
	p.pause()
	p.step(func() error { return p.makeOlder(later) })
	p.Fake.Advance(later)
	defer p.Fake.Advance(-later)
	p.note(event{Lane: laneClient, Text: "25 hours pass", Detail: "the demo made the order older, and moved the provider’s clock"})
	return p.sendUntilFinal(again)
}

// killed kills and restarts the API process after the charge, or while the customer must approve.
func (p *play) killed() client.Response {
	if p.card.Asks {
		p.killDuringApproval = true
		return p.order()
	}
	lost := p.proxy.loseResponse()
	defer p.proxy.restore()
	p.announce(sentRequest{title: firstTime})
	ended := make(chan error, 1)
	go func() {
		_, err := p.client.Send(p.ctx, p.request)
		ended <- err
	}()
	select {
	case <-lost:
	case err := <-ended:
		p.fail(errors.Join(errNoConfirm, err))
		return client.Response{}
	}
	p.kill("the lease stays until it expires")
	p.check("The killed process did not respond", <-ended != nil, "the connection broke")
	p.proxy.restore()
	p.restart()
	return p.sendUntilFinal(again)
}

func (p *play) kill(detail string) {
	p.note(event{Lane: laneRow, Kind: kindFault, Text: fmt.Sprintf("SIGKILL, process %d", p.api.PID()), Detail: detail})
	p.step(p.api.Kill)
}

func (p *play) restart() {
	p.transport.CloseIdleConnections()
	p.pause()
	p.step(func() error { return p.ready(p.ctx) })
	p.note(event{Lane: laneRow, Kind: kindRepair, Text: fmt.Sprintf("started again, process %d", p.api.PID())})
}

func (p *play) storedError() client.Response {
	injected := p.Fake.Inject(stripetest.Rule{Fault: stripetest.ErrorAfter, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
	defer injected.Release()
	final := p.order()
	p.check("The provider returned 500 after its effect", injected.Triggered() == 1, fmt.Sprintf("%d time", injected.Triggered()))
	return final
}

// askCustomer waits for the customer's decision, and reports it to the fake as the bank would.
func (p *play) askCustomer(action client.Action) {
	if p.decision != "" {
		p.fail(errors.New("the bank asked a second time"))
		return
	}
	p.check("The API asked for the customer’s approval", true, "202 requires_action")
	if p.killDuringApproval {
		p.kill("no lease is held: the order waits for the customer")
	}
	if p.decision = p.customer; p.decision == "" {
		p.update(func(v *view) { v.Asks = true })
		select {
		case p.decision = <-p.decisions:
		case <-p.ctx.Done():
			return
		}
	}
	p.note(event{Lane: laneClient, Text: "the customer " + p.decision + "s", Detail: "the bank notifies the provider, not the API"})
	p.step(func() error { return p.Fake.Authenticate(action.PaymentIntentID, p.decision == approves) })
	_, _ = p.observe(func() {})
	if p.killDuringApproval {
		p.check("No API process ran during the approval", p.api.Exited(), "it was killed before")
		p.restart()
	}
}

func (p *play) decide(decision string) (asked bool) {
	p.update(func(v *view) { asked, v.Asks = v.Asks, false })
	if asked {
		p.decisions <- decision
	}
	return asked
}
