package tour

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

// claim is a sentence of the tour and its check, which returns what it observed.
type claim struct {
	name  string
	check func(context.Context) (string, error)
}

// errSkipped means that a claim cannot be checked with this provider.
var errSkipped = errors.New("skipped")

func (t *tour) claims() []claim {
	return []claim{
		{"an order is charged", t.charge},
		{"the same request again: the same bytes", t.repeat},
		{"20 twins at once: one charge", t.twins},
		{"another body under a used key", t.otherBody},
		{"a declined card, and its replay", t.decline},
		{"the answer is lost after the charge", t.lostAnswer},
		{"SIGKILL in mid-charge, restart, retry", t.crash},
		{"SIGKILL while the customer approves, retry", t.approval},
		{"the provider keeps a 500 after the charge", t.savedError},
		{"each receipt arrives once", t.receipts},
	}
}

func (t *tour) charge(ctx context.Context) (string, error) {
	p := newPurchase("pm_card_visa")
	a, err := t.client.Send(ctx, p)
	if err != nil {
		return "", err
	}
	order, err := t.paid(a)
	if err != nil {
		return "", err
	}
	t.first = sent{p, a}
	return fmt.Sprintf("201, $25.00, %s", order.PaymentIntentID), nil
}

func (t *tour) repeat(ctx context.Context) (string, error) {
	a, err := t.client.Send(ctx, t.first.purchase)
	if err != nil {
		return "", err
	}
	if err := replayOf(a, t.first.answer); err != nil {
		return "", err
	}
	return fmt.Sprintf("201 replayed, %d bytes alike", len(a.Body)), nil
}

func (t *tour) twins(ctx context.Context) (string, error) {
	const n = 20
	p := newPurchase("pm_card_visa")
	answers := make([]client.Response, n)
	errs := make([]error, n)
	start := make(chan struct{})
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			<-start
			answers[i], errs[i] = t.client.Send(ctx, p)
		})
	}
	close(start)
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	var created, replayed, told int
	var final client.Response
	for _, a := range answers {
		switch {
		case a.Status == http.StatusCreated && !a.Replayed():
			created++
			final = a
		case a.Status == http.StatusCreated:
			replayed++
		case a.Status == http.StatusConflict && a.RetryAfter() > 0:
			told++
		default:
			return "", fmt.Errorf("a twin got %s", a)
		}
	}
	if created != 1 {
		return "", fmt.Errorf("%d twins were executed", created)
	}
	for _, a := range answers {
		if a.Status == http.StatusConflict {
			var err error
			if a, err = t.sendUntilFinal(ctx, p); err != nil {
				return "", err
			}
		}
		if !bytes.Equal(a.Body, final.Body) {
			return "", fmt.Errorf("a twin got other bytes: %s", a)
		}
	}
	if _, err := t.paid(final); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d executed, %d replayed, %d told to wait", created, replayed, told), nil
}

func (t *tour) otherBody(ctx context.Context) (string, error) {
	other := newPurchase("pm_card_mastercard")
	other.Key = t.first.purchase.Key
	a, err := t.client.Send(ctx, other)
	if err != nil {
		return "", err
	}
	_, err = expectProblem(a, http.StatusUnprocessableEntity, "idempotency-key-reused")
	return "422 idempotency-key-reused", err
}

func (t *tour) decline(ctx context.Context) (string, error) {
	p := newPurchase("pm_card_visa_chargeDeclinedInsufficientFunds")
	a, err := t.client.Send(ctx, p)
	if err != nil {
		return "", err
	}
	problem, err := expectProblem(a, http.StatusPaymentRequired, "payment-declined")
	if err != nil {
		return "", err
	}
	t.orders[problem.OrderID] = sale{amount: 0, claim: len(t.rows) - 1}
	again, err := t.client.Send(ctx, p)
	if err != nil {
		return "", err
	}
	return "402 " + problem.DeclineCode + ", replayed alike", replayOf(again, a)
}

func (t *tour) lostAnswer(ctx context.Context) (string, error) {
	p := newPurchase("pm_card_visa")
	dropped := t.proxy.DropResponseAfterConfirm()
	defer t.proxy.Restore()
	a, err := t.client.Send(ctx, p)
	if err != nil {
		return "", err
	}
	if _, err := expectProblem(a, http.StatusServiceUnavailable, "payment-outcome-unknown"); err != nil {
		return "", err
	}
	select {
	case status := <-dropped:
		if status != http.StatusOK {
			return "", fmt.Errorf("the provider answered %d instead of charging", status)
		}
	default:
		return "", errors.New("the provider was never asked to charge")
	}
	t.proxy.Restore()
	final, err := t.sendUntilFinal(ctx, p)
	if err != nil {
		return "", err
	}
	_, err = t.paid(final)
	return "503 payment-outcome-unknown, then 201", err
}

func (t *tour) crash(ctx context.Context) (string, error) {
	p := newPurchase("pm_card_visa")
	dropped := t.proxy.DropResponseAfterConfirm()
	defer t.proxy.Restore()
	ended := make(chan error, 1)
	go func() {
		_, err := t.client.Send(ctx, p)
		ended <- err
	}()
	select {
	case status := <-dropped:
		if status != http.StatusOK {
			return "", fmt.Errorf("the provider answered %d instead of charging", status)
		}
	case err := <-ended:
		return "", errors.Join(errors.New("the request ended before the charge"), err)
	case <-time.After(30 * time.Second):
		return "", errors.New("the provider was never asked to charge")
	}
	if err := t.api.Kill(); err != nil {
		return "", err
	}
	if err := <-ended; err == nil {
		return "", errors.New("a killed process gave an answer")
	}
	t.transport.CloseIdleConnections() // to the dead process
	t.proxy.Restore()
	if err := t.startAPI(ctx); err != nil {
		return "", err
	}
	before := t.requests.Load()
	final, err := t.sendUntilFinal(ctx, p)
	if err != nil {
		return "", err
	}
	_, err = t.paid(final)
	return fmt.Sprintf("no answer, told to wait %d times, then 201", t.requests.Load()-before-1), err
}

func (t *tour) approval(ctx context.Context) (string, error) {
	if t.StandIn == nil {
		return "skipped: at Stripe, only a browser can approve", errSkipped
	}
	p := newPurchase("pm_card_threeDSecure2Required")
	a, err := t.client.Send(ctx, p)
	if err != nil {
		return "", err
	}
	var status struct {
		State  string
		Action struct {
			PaymentIntentID string `json:"payment_intent_id"`
		}
	}
	if err := json.Unmarshal(a.Body, &status); a.Status != http.StatusAccepted || err != nil || status.State != "requires_action" {
		return "", errors.Join(fmt.Errorf("expected 202 and a required action, got %d %q", a.Status, status.State), err)
	}
	if err := t.api.Kill(); err != nil {
		return "", err
	}
	if err := t.StandIn.Authenticate(status.Action.PaymentIntentID, true); err != nil {
		return "", err
	}
	t.transport.CloseIdleConnections() // to the dead process
	if err := t.startAPI(ctx); err != nil {
		return "", err
	}
	final, err := t.sendUntilFinal(ctx, p)
	if err != nil {
		return "", err
	}
	_, err = t.paid(final)
	return "202 requires_action, approved, then 201", err
}

func (t *tour) savedError(ctx context.Context) (string, error) {
	if t.StandIn == nil {
		return "skipped: only our own stand-in answers 500 on demand", errSkipped
	}
	fault := t.StandIn.Inject(stripetest.Rule{Fault: stripetest.ErrorAfter, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
	a, err := t.sendUntilFinal(ctx, newPurchase("pm_card_visa"))
	if err != nil {
		return "", err
	}
	if fault.Triggered() != 1 {
		return "", errors.New("the fault did not strike")
	}
	_, err = t.paid(a)
	return "201: the intent itself was asked", err
}

func (t *tour) receipts(ctx context.Context) (string, error) {
	paid := 0
	for _, sale := range t.orders {
		if sale.amount > 0 {
			paid++
		}
	}
	err := poll(ctx, 30*time.Second, "not every receipt has arrived", func() (bool, error) {
		return t.mail.received() >= paid, nil
	})
	if err != nil {
		return "", err
	}
	// Stop the worker and make one more pass: a receipt that is still staged would
	// be sent now.
	if err := t.worker.Stop(); err != nil {
		return "", err
	}
	t.worker.Args = []string{"worker", "--once"}
	if err := t.worker.Start(); err != nil {
		return "", err
	}
	if err := errors.Join(t.worker.Wait(), t.countReceipts()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d mails for %d paid orders", t.mail.received(), paid), nil
}

// countReceipts checks that each paid order has one receipt and no other order has
// one.
func (t *tour) countReceipts() error {
	for id, sale := range t.orders {
		expected := 1
		if sale.amount == 0 {
			expected = 0
		}
		if n := t.mail.receivedFor(id); n != expected {
			return fmt.Errorf("order %s: %d receipts, expected %d", id, n, expected)
		}
		t.rows[sale.claim].receipts += expected
	}
	return nil
}
