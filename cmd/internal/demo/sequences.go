package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

// sequence sends an order, causes a fault and returns the final response.
type sequence func(*play, context.Context) (client.Response, error)

const concurrency = 20

const (
	firstTime   = "The order"
	again       = "The same request again"
	afterWindow = "The same request after the customer’s decision"
)

func (p *play) order(ctx context.Context) (client.Response, error) {
	return p.sendUntilFinal(ctx, firstTime)
}

func (p *play) repeat(ctx context.Context) (client.Response, error) {
	first, err := p.sendUntilFinal(ctx, firstTime)
	if err != nil {
		return first, err
	}
	if err := p.pause(ctx); err != nil {
		return first, err
	}
	return first, p.sendReplay(ctx, first, again)
}

func (p *play) sendReplay(ctx context.Context, first client.Response, title string) error {
	second, err := p.send(ctx, title, p.request)
	if err != nil {
		return err
	}
	p.check(title+": the same bytes", second.Replayed() && second.Status == first.Status && bytes.Equal(second.Body, first.Body),
		fmt.Sprintf("%s, %d bytes", describe(second), len(second.Body)))
	return nil
}

func (p *play) concurrent(ctx context.Context) (client.Response, error) {
	lines := fmt.Sprintf("for i in $(seq %d); do\n%s &\ndone; wait", concurrency, curl(p.BaseURL, p.request))
	p.announce(requestView{Title: "20 concurrent requests", Curl: lines, Concurrent: true}, fmt.Sprintf("sends %d concurrent requests", concurrency))
	responses := make([]client.Response, concurrency)
	errs := make([]error, concurrency)
	start := make(chan struct{})
	var group sync.WaitGroup
	for i := range concurrency {
		group.Go(func() {
			<-start
			responses[i], errs[i] = p.client.Send(ctx, p.request)
		})
	}
	close(start)
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return client.Response{}, err
	}
	p.note(event{Lane: laneClient, Text: fmt.Sprintf("has all %d responses", concurrency)})

	var final client.Response
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
		var err error
		if final, err = p.sendUntilFinal(ctx, again); err != nil {
			return client.Response{}, err
		}
		executed, retryLater = 1, retryLater-1
	}
	equal := true
	for _, r := range responses {
		equal = equal && (!r.Replayed() || bytes.Equal(r.Body, final.Body))
	}
	p.check("One of the 20 requests was executed", executed == 1 && equal,
		fmt.Sprintf("%d executed, %d replayed, %d with Retry-After", executed, replayed, retryLater))
	return final, nil
}

func (p *play) otherBody(ctx context.Context) (client.Response, error) {
	final, err := p.sendUntilFinal(ctx, firstTime)
	if err != nil {
		return final, err
	}
	if err := p.pause(ctx); err != nil {
		return final, err
	}
	other := p.request
	other.Body = orderBody(p.card.ID, 100*quantity)
	rejected, err := p.send(ctx, "Another order with the same key", other)
	if err == nil {
		p.checkProblem("The other body was rejected", rejected, http.StatusUnprocessableEntity, "idempotency-key-reused")
	}
	return final, err
}

// lostResponse drops the response to the confirm, until the API has responded.
func (p *play) lostResponse(ctx context.Context) (client.Response, error) {
	dropped := p.proxy.DropResponseAfterConfirm()
	defer p.proxy.Restore()
	response, err := p.send(ctx, firstTime, p.request)
	if err != nil {
		return response, err
	}
	p.checkProblem("The API reported an unknown outcome", response, http.StatusServiceUnavailable, "payment-outcome-unknown")
	select {
	case status := <-dropped:
		p.check("The provider’s response was lost", status != 0, fmt.Sprintf("its %d was dropped", status))
	default:
		return response, errNoConfirm
	}
	p.proxy.Restore()
	p.note(event{Lane: laneProvider, Kind: kindRepair, Text: "the connection is restored"})
	if err := p.pause(ctx); err != nil {
		return response, err
	}
	return p.sendUntilFinal(ctx, again)
}

var errNoConfirm = errors.New("the API did not confirm the payment")

// killed restarts the API process after the charge, or while the customer must approve.
func (p *play) killed(ctx context.Context) (client.Response, error) {
	if p.card.Asks {
		p.killDuringApproval = true
		return p.order(ctx)
	}
	dropped := p.proxy.DropResponseAfterConfirm()
	defer p.proxy.Restore()
	ended := make(chan error, 1)
	go func() {
		_, err := p.send(ctx, firstTime, p.request)
		ended <- err
	}()
	select {
	case <-dropped:
	case err := <-ended:
		return client.Response{}, errors.Join(errNoConfirm, err)
	}
	if err := p.kill("the lease stays until it expires"); err != nil {
		return client.Response{}, err
	}
	err := <-ended
	p.check("The killed process did not respond", err != nil, "the connection broke")
	p.proxy.Restore()
	if err := p.restart(ctx); err != nil {
		return client.Response{}, err
	}
	return p.sendUntilFinal(ctx, again)
}

func (p *play) kill(detail string) error {
	killed := event{
		at: time.Now(), Lane: laneRow, Kind: kindFault,
		Text: fmt.Sprintf("SIGKILL, process %d", p.api.PID()), Detail: detail,
	}
	if err := p.api.Kill(); err != nil {
		return err
	}
	p.note(killed)
	return nil
}

func (p *play) restart(ctx context.Context) error {
	p.transport.CloseIdleConnections() // to the killed process
	if err := p.pause(ctx); err != nil {
		return err
	}
	if err := p.ready(ctx); err != nil {
		return err
	}
	p.note(event{Lane: laneRow, Kind: kindRepair, Text: fmt.Sprintf("started again, process %d", p.api.PID())})
	return nil
}

// storedError makes the stand-in charge and respond with 500.
func (p *play) storedError(ctx context.Context) (client.Response, error) {
	injected := p.StandIn.Inject(stripetest.Rule{Fault: stripetest.ErrorAfter, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
	defer injected.Release()
	final, err := p.sendUntilFinal(ctx, firstTime)
	if err == nil {
		p.check("The provider returned 500 after its effect", injected.Triggered() == 1, fmt.Sprintf("%d time", injected.Triggered()))
	}
	return final, err
}

func (p *play) askCustomer(ctx context.Context, action client.Action) error {
	if p.decision != "" {
		return errors.New("the bank asked a second time")
	}
	p.check("The API asked for the customer’s approval", true, "202 requires_action")
	if p.killDuringApproval {
		if err := p.kill("no lease is held: the order waits for the customer"); err != nil {
			return err
		}
	}
	if p.decision = p.customer; p.decision == "" {
		p.update(func(v *view) { v.Asks = true })
		timer := time.AfterFunc(customerTimeout, func() { p.closeWindow(leaves) })
		defer timer.Stop()
		select {
		case p.decision = <-p.decisions:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := p.applyDecision(ctx, action.PaymentIntentID); err != nil {
		return err
	}
	if p.killDuringApproval {
		p.check("No API process ran during the approval", p.api.Exited(), "it was killed before")
		return p.restart(ctx)
	}
	return p.pause(ctx)
}

// applyDecision sends the decision to the bank, or makes the order a day older without one.
func (p *play) applyDecision(ctx context.Context, intentID string) error {
	if p.decision != leaves {
		p.note(event{Lane: laneClient, Text: "the customer " + p.decision + "s", Detail: "the bank notifies the provider, not the API"})
		err := p.StandIn.Authenticate(intentID, p.decision == approves)
		p.providerChanged(time.Now())
		return err
	}
	p.note(event{Lane: laneClient, Kind: kindFault, Text: "the customer closes the window", Detail: "the client sends nothing"})
	if err := p.pause(ctx); err != nil {
		return err
	}
	if err := p.makeOlder(ctx, string(p.request.Key), chargeWindow); err != nil {
		return err
	}
	p.note(event{Lane: laneRow, Kind: kindRepair, Text: "a day later, orders completer runs", Detail: "the demo made the order 24 hours older"})
	if err := p.completer.Start(); err != nil {
		return err
	}
	if err := p.completer.Wait(); err != nil {
		return fmt.Errorf("orders completer: %w", err)
	}
	return nil
}

// customerTimeout is how long the customer's window stays open. The page shows it.
const customerTimeout = time.Minute

func (p *play) closeWindow(decision string) (open bool) {
	p.update(func(v *view) { open, v.Asks = v.Asks, false })
	if open {
		p.decisions <- decision
	}
	return open
}
