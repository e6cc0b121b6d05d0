package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

// twins is the number of concurrent duplicates.
const twins = 20

const (
	firstTime = "The order"
	sameAgain = "The same line again, as told"
	// afterWindow is what the shop's page sends after Stripe.js has closed the window.
	afterWindow = "The same line again, after the bank’s window"
)

// plain sends the order without a failure.
func (p *play) plain(ctx context.Context) (client.Response, error) {
	return p.sendUntilFinal(ctx, firstTime)
}

// lostAnswer drops the response to the confirm, and restores the connection when the
// API has responded.
func (p *play) lostAnswer(ctx context.Context) (client.Response, error) {
	dropped := p.console.proxy.DropResponseAfterConfirm()
	defer p.console.proxy.Restore()
	response, err := p.send(ctx, firstTime, p.request)
	if err != nil {
		return client.Response{}, err
	}
	problem := problemOf(response)
	p.check("The API said that it does not know", response.Status == http.StatusServiceUnavailable && problem == "payment-outcome-unknown",
		fmt.Sprintf("%d %s", response.Status, problem))
	select {
	case status := <-dropped:
		p.check("The provider’s answer was lost", true, fmt.Sprintf("its %d never arrived", status))
	default:
		return client.Response{}, errors.New("the order never came to its charge")
	}
	p.console.proxy.Restore()
	p.note(event{Lane: laneProvider, Kind: kindRepair, Text: "the line is mended"})
	if err := p.pause(ctx); err != nil {
		return client.Response{}, err
	}
	return p.sendUntilFinal(ctx, sameAgain)
}

// savedError makes the stand-in answer 500 to the confirm, after its effect.
func (p *play) savedError(ctx context.Context) (client.Response, error) {
	fault := p.console.StandIn.Inject(stripetest.Rule{Fault: stripetest.ErrorAfter, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
	defer fault.Release()
	answer, err := p.sendUntilFinal(ctx, firstTime)
	if err == nil {
		p.check("The provider answered 500 after its work", fault.Triggered() == 1, fmt.Sprintf("%d time", fault.Triggered()))
	}
	return answer, err
}

// killed kills the API process when the provider has charged, and starts it again.
func (p *play) killed(ctx context.Context) (client.Response, error) {
	if p.chosen.card.Asks {
		return p.killedWhileAsking(ctx)
	}
	c := p.console
	dropped := c.proxy.DropResponseAfterConfirm()
	defer c.proxy.Restore()
	ended := make(chan error, 1)
	go func() {
		_, err := p.send(ctx, firstTime, p.request)
		ended <- err
	}()
	select {
	case <-dropped:
	case err := <-ended:
		return client.Response{}, errors.Join(errors.New("the order never came to its charge"), err)
	}
	if err := p.kill("orders serve is gone; its lease stays"); err != nil {
		return client.Response{}, err
	}
	err := <-ended
	p.check("The killed process gave no answer", err != nil, "the connection broke")
	c.proxy.Restore()
	if err := p.restart(ctx); err != nil {
		return client.Response{}, err
	}
	return p.sendUntilFinal(ctx, sameAgain)
}

// killedWhileAsking kills the API process while the customer's window is open, and
// starts it again when the window is closed.
func (p *play) killedWhileAsking(ctx context.Context) (client.Response, error) {
	response, err := p.send(ctx, firstTime, p.request)
	if err != nil {
		return response, err
	}
	if err := p.kill("orders serve is gone; the order waits without it"); err != nil {
		return response, err
	}
	if err := p.askCustomer(ctx, response); err != nil {
		return response, err
	}
	p.check("No API process ran while the bank asked", p.console.api.Exited(), "it was killed before")
	if err := p.restart(ctx); err != nil {
		return response, err
	}
	return p.sendUntilFinal(ctx, afterWindow)
}

// kill kills the API process.
func (p *play) kill(detail string) error {
	pid := p.console.api.PID()
	if err := p.console.api.Kill(); err != nil {
		return err
	}
	p.note(event{Lane: laneRow, Kind: kindFault, Text: fmt.Sprintf("SIGKILL, process %d", pid), Detail: detail})
	return nil
}

// restart starts the API process again.
func (p *play) restart(ctx context.Context) error {
	p.console.transport.CloseIdleConnections() // to the dead process
	if err := p.pause(ctx); err != nil {
		return err
	}
	if err := p.console.startAPI(ctx); err != nil {
		return err
	}
	p.note(event{Lane: laneRow, Kind: kindRepair, Text: fmt.Sprintf("started again, process %d", p.console.api.PID())})
	return nil
}

// twins sends the order twenty times at once.
func (p *play) twins(ctx context.Context) (client.Response, error) {
	p.announce(requestView{Title: "Twenty at once", Curl: curlTwins(p.console.base, p.request, twins), Many: true},
		fmt.Sprintf("sends it %d times at once", twins))
	answers := make([]client.Response, twins)
	errs := make([]error, twins)
	start := make(chan struct{})
	var group sync.WaitGroup
	for i := range twins {
		group.Go(func() {
			<-start
			answers[i], errs[i] = p.console.client.Send(ctx, p.request)
		})
	}
	close(start)
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return client.Response{}, err
	}
	var final client.Response
	var executed, replayed, told, strange int
	for _, a := range answers {
		switch {
		case a.Status == http.StatusConflict, a.Status == http.StatusServiceUnavailable, a.Status == http.StatusAccepted:
			told++
		case a.Status != http.StatusCreated && a.Status != http.StatusPaymentRequired:
			strange++
		case a.Replayed():
			replayed++
		default:
			executed++
			final = a
		}
	}
	p.note(event{Lane: laneClient, Text: "has all the answers"})
	if executed == 0 && strange == 0 { // the run that claimed the key got a 503 or a 202
		var err error
		if final, err = p.sendUntilFinal(ctx, sameAgain); err != nil {
			return client.Response{}, err
		}
		executed, told = 1, told-1
	}
	for _, a := range answers {
		if a.Replayed() && !bytes.Equal(a.Body, final.Body) {
			strange++
		}
	}
	p.check("One of the twenty was executed", executed == 1 && strange == 0,
		fmt.Sprintf("%d executed, %d replayed, %d told to wait", executed, replayed, told))
	return final, nil
}

// otherBody uses the order's key for another order.
func (p *play) otherBody(ctx context.Context) (client.Response, error) {
	answer, err := p.sendUntilFinal(ctx, firstTime)
	if err != nil {
		return answer, err
	}
	if err := p.pause(ctx); err != nil {
		return answer, err
	}
	other := p.request
	other.Body = orderBody(p.chosen.card.ID, 100) // a hundred teas
	refused, err := p.send(ctx, "A hundred teas, under the same key", other)
	if err != nil {
		return answer, err
	}
	problem := problemOf(refused)
	p.check("The other body was refused", refused.Status == http.StatusUnprocessableEntity && problem == "idempotency-key-reused",
		fmt.Sprintf("%d %s", refused.Status, problem))
	return answer, nil
}
