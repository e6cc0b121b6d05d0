package demo

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

type sequence func(*play) client.Response

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
	lines := fmt.Sprintf("for i in $(seq %d); do\n%s &\ndone; wait", concurrency, curl(p.BaseURL, p.request))
	p.announce(requestView{Title: "20 concurrent requests", Curl: lines, Concurrent: true})
	responses := make([]client.Response, concurrency)
	p.step(func() error {
		errs := make([]error, concurrency)
		start := make(chan struct{})
		var group sync.WaitGroup
		for i := range concurrency {
			group.Go(func() {
				<-start
				responses[i], errs[i] = p.client.Send(p.ctx, p.request)
			})
		}
		close(start)
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
	if executed == 0 { // the run that claimed the key is not finished
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
	p.checkProblem("The other body was rejected", rejected, http.StatusUnprocessableEntity, "idempotency-key-reused")
	return final
}

var errNoConfirm = errors.New("the API did not confirm the payment")

func (p *play) lostResponse() client.Response {
	p.loseResponse()
	return p.sendUntilFinal(again)
}

func (p *play) loseResponse() {
	dropped := p.proxy.DropResponseAfterConfirm()
	defer p.proxy.Restore()
	response := p.send(firstTime, p.request)
	p.checkProblem("The API reported an unknown outcome", response, http.StatusServiceUnavailable, "payment-outcome-unknown")
	select {
	case status := <-dropped:
		p.check("The provider’s response was lost", status != 0, fmt.Sprintf("its %d was dropped", status))
	default:
		p.fail(errNoConfirm)
	}
	p.proxy.Restore()
	p.note(event{Lane: laneProvider, Kind: kindRepair, Text: "the connection is restored"})
}

const later = 25 * time.Hour

// lateRetry retries when the provider has deleted its keys. The fake's clock is moved only
// during the retry, because other clients use the fake too.
func (p *play) lateRetry() client.Response {
	p.loseResponse()
	p.pause()
	p.step(func() error { return p.makeOlder(p.ctx, string(p.request.Key), later) })
	p.Fake.Advance(later)
	defer p.Fake.Advance(-later)
	p.note(event{Lane: laneClient, Text: "25 hours pass", Detail: "the demo made the order older, and moved the provider’s clock"})
	if p.card.Asks { // no customer is asked to approve an order of yesterday
		p.decision = leaves
	}
	return p.sendUntilFinal(again)
}

// killed restarts the API process after the charge, or while the customer must approve.
func (p *play) killed() client.Response {
	if p.card.Asks {
		p.killDuringApproval = true
		return p.order()
	}
	dropped := p.proxy.DropResponseAfterConfirm()
	defer p.proxy.Restore()
	p.announce(requestView{Title: firstTime, Curl: curl(p.BaseURL, p.request)})
	ended := make(chan error, 1)
	go func() {
		_, err := p.client.Send(p.ctx, p.request)
		ended <- err
	}()
	select {
	case <-dropped:
	case err := <-ended:
		p.fail(errors.Join(errNoConfirm, err))
		return client.Response{}
	}
	p.kill("the lease stays until it expires")
	p.check("The killed process did not respond", <-ended != nil, "the connection broke")
	p.proxy.Restore()
	p.restart()
	return p.sendUntilFinal(again)
}

func (p *play) kill(detail string) {
	killed := event{
		at: time.Now(), Lane: laneRow, Kind: kindFault,
		Text: fmt.Sprintf("SIGKILL, process %d", p.api.PID()), Detail: detail,
	}
	p.step(p.api.Kill)
	p.note(killed)
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
		timer := time.AfterFunc(customerTimeout, func() { p.closeWindow(leaves) })
		defer timer.Stop()
		select {
		case p.decision = <-p.decisions:
		case <-p.ctx.Done():
			return
		}
	}
	p.applyDecision(action.PaymentIntentID)
	if p.killDuringApproval {
		p.check("No API process ran during the approval", p.api.Exited(), "it was killed before")
		p.restart()
	}
}

// applyDecision sends the decision to the bank, or makes the order a day older without one.
func (p *play) applyDecision(intentID string) {
	if p.decision != leaves {
		p.note(event{Lane: laneClient, Text: "the customer " + p.decision + "s", Detail: "the bank notifies the provider, not the API"})
		p.step(func() error { return p.Fake.Authenticate(intentID, p.decision == approves) })
		p.update(func(*view) { p.providerTime = time.Now() })
		p.observe("")
		return
	}
	p.note(event{Lane: laneClient, Kind: kindFault, Text: "the customer closes the window", Detail: "the client sends nothing"})
	p.pause()
	p.step(func() error { return p.makeOlder(p.ctx, string(p.request.Key), chargeWindow) })
	p.note(event{Lane: laneRow, Kind: kindRepair, Text: "a day later, orders completer runs", Detail: "the demo made the order 24 hours older"})
	p.step(p.completer.Start)
	p.step(p.completer.Wait)
}

const customerTimeout = time.Minute

func (p *play) closeWindow(decision string) (open bool) {
	p.update(func(v *view) { open, v.Asks = v.Asks, false })
	if open {
		p.decisions <- decision
	}
	return open
}
