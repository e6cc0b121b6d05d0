//go:build unix

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
)

var windowOver = strings.Replace(declinedBody, `"/problems/payment-declined","status":402`,
	`"/problems/payment-refused","status":422,"code":"charge_window_over"`, 1)

// withChallenge returns a valid observation of which the second order's customer acts
// after the charge window.
func withChallenge() (observation, *purchase) {
	o := valid()
	p := o.purchases[1]
	p.challenge, p.want = approvesLate, http.StatusUnprocessableEntity
	p.exchanges = newExchanges("late", http.StatusUnprocessableEntity, windowOver)
	p.sent = time.Now()
	p.stored[0].at = p.sent.Add(chargeWindow)
	return o, p
}

func TestCheck_challenge(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(o *observation, p *purchase)
		want   string // "": no violation
	}{
		"ended after the window": {func(*observation, *purchase) {}, ""},
		"ended too early": {
			func(_ *observation, p *purchase) { p.stored[0].at = p.sent.Add(chargeWindow / 2) }, "status 422 instead of 422",
		},
		"ended too early, and the customer wanted to pay": {
			func(_ *observation, p *purchase) {
				p.challenge, p.want = approvesSoon, http.StatusCreated
				p.stored[0].at = p.sent.Add(chargeWindow / 2)
			}, "wrongly declined: status 422",
		},
		"refused for another reason": {
			func(_ *observation, p *purchase) {
				body := strings.Replace(windowOver, "charge_window_over", "canceled", 1)
				p.stored, p.replay = response(http.StatusUnprocessableEntity, body)
			}, "status 422 instead of 422",
		},
		"refused although it was approved": {func(_ *observation, p *purchase) { p.approved = true }, "wrongly declined: status 422"},
		"refused although the card was charged": {
			func(o *observation, _ *purchase) {
				o.charges = append(o.charges, stripetest.Charge{OrderID: "order-2", Amount: 2000})
			},
			"1 charges at the provider without a response 201",
		},
		"paid without an approval": {
			func(o *observation, p *purchase) {
				p.stored, p.replay = response(http.StatusCreated, `{"id":"order-2","amount":2000,"currency":"usd"}`)
			}, "charged 0 times",
		},
		"a late client secret": {func(_ *observation, p *purchase) { p.lateSecret = time.Second }, "a client secret was given out 1s after the charge window"},
		"no final response of a customer who left": {
			func(_ *observation, p *purchase) { p.left, p.stored, p.replay = true, nil, nil }, "no final response",
		},
		"a customer who left": {func(_ *observation, p *purchase) { p.left, p.stored = true, nil }, ""},
		"a new key that was not charged": {
			func(_ *observation, p *purchase) {
				p.again = &purchase{
					exchanges: newExchanges("again", http.StatusCreated, `{"id":"order-3","amount":2000,"currency":"usd"}`),
					amount:    2000, want: http.StatusCreated,
				}
			}, "order order-3: charged 0 times",
		},
		"a new key of a paid order": {
			func(o *observation, p *purchase) {
				o.purchases[0].again = &purchase{exchanges: p.exchanges, want: p.want}
			},
			"paid, and paid again with a new key",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, p := withChallenge()
			test.change(&o, p)
			requireViolation(t, test.want, o)
		})
	}
}

func requireViolation(t *testing.T, want string, o observation) {
	t.Helper()
	if want == "" {
		require.Empty(t, check(o))
	} else {
		require.Contains(t, fmt.Sprint(check(o)), want)
	}
}

// withLoss returns a valid observation of a failover that lost the first order, whose key
// was then expired and whose charge was refunded.
func withLoss() (observation, *loss) {
	o := valid()
	id := uuid.NewString()
	body := fmt.Sprintf(`{"id":%q,"amount":1000,"currency":"usd","paid_at":"2026-11-20T09:30:12Z"}`, id)
	p := o.purchases[0]
	p.stored, _ = response(http.StatusCreated, body)
	p.stored[0].at, p.created = time.Now(), id
	p.replay = &client.Response{
		Status: http.StatusUnprocessableEntity,
		Body:   []byte(`{"type":"/problems/idempotency-key-expired"}`),
	}
	o.charges = []stripetest.Charge{{OrderID: id, IntentID: "pi_1", Amount: 1000, Refunded: 1000, Currency: "usd"}}
	o.refunds = append(o.refunds, stripetest.Refund{IntentID: "pi_1", Amount: 700})
	o.refunds[0].IntentID = "pi_1"
	o.discrepancies = []reconcile.Discrepancy{{Kind: reconcile.UnrecordedCharge, OrderID: uuid.MustParse(id)}}
	l := &loss{
		from: p.stored[0].at.Add(-time.Second), until: p.stored[0].at.Add(time.Second),
		acknowledged: []string{id}, named: map[string]bool{id: true}, expired: map[string]bool{id: true},
	}
	o.losses = []*loss{l}
	return o, l
}

func TestCheck_lostRows(t *testing.T) {
	t.Parallel()
	restore := func(o *observation, paidAt string) {
		p := o.purchases[0]
		body := strings.Replace(string(p.stored[0].Body), "09:30:12", paidAt, 1)
		again, replay := response(http.StatusCreated, body)
		p.stored, p.replay, p.refunds = append(p.stored, again...), replay, nil
		o.charges[0].Refunded, o.refunds = 0, nil
	}
	tests := map[string]struct {
		change func(o *observation, l *loss)
		want   string // "": no violation
	}{
		"named, expired and refunded": {func(*observation, *loss) {}, ""},
		"not named": {
			func(_ *observation, l *loss) { l.named = nil }, "the row is lost, and the runbook's commands did not name it",
		},
		"not refunded":  {func(o *observation, _ *loss) { o.charges[0].Refunded-- }, "1 charges at the provider without a response 201"},
		"charged twice": {func(o *observation, _ *loss) { o.charges = append(o.charges, o.charges[0]) }, "2 charges at the provider without a response 201"},
		"the key of an order that was not lost": {
			func(_ *observation, l *loss) { l.expired = nil }, "the replay differs",
		},
		"a discrepancy of another order": {
			func(o *observation, _ *loss) { o.discrepancies[0].OrderID = uuid.New() }, "orders reconcile: unrecorded_charge",
		},
		"restored by a retry": {func(o *observation, l *loss) { l.expired, o.discrepancies = nil, nil; restore(o, "10:00:00") }, ""},
		"restored, and paid again with a new key": {
			func(o *observation, l *loss) {
				restore(o, "10:00:00")
				o.purchases[0].again = o.purchases[1]
			}, "paid, and paid again with a new key",
		},
		"another response, although it was acknowledged before": {
			func(o *observation, l *loss) {
				restore(o, "10:00:00")
				l.from = l.until
			}, "two final responses differ",
		},
		"restored with another payment": {
			func(o *observation, _ *loss) { restore(o, `","payment_intent_id":"pi_2`) }, "two final responses differ",
		},
		"a success that becomes a failure": {
			func(o *observation, _ *loss) {
				p := o.purchases[0]
				failed, replay := response(http.StatusPaymentRequired, declinedBody)
				p.stored, p.replay = append(p.stored, failed...), replay
			}, "two final responses differ",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, l := withLoss()
			test.change(&o, l)
			requireViolation(t, test.want, o)
		})
	}
}

// The intent of a lost order may be cancelled. Its client is refused, and pays with a new
// key.
func TestCheck_cancelled(t *testing.T) {
	t.Parallel()
	o := valid()
	p := o.purchases[1]
	p.want = http.StatusCreated
	p.stored, p.replay = response(http.StatusUnprocessableEntity, strings.Replace(windowOver, "charge_window_over", "canceled", 1))
	requireViolation(t, "wrongly declined: status 422", o)
	o.losses = []*loss{{cancelled: map[string]bool{"order-2": true}}}
	requireViolation(t, "", o)
}

// If its customer has left, the replay is the first run of the lost key. Otherwise the
// completer must have ended the order before.
func TestCheck_cancelledAfterTheCustomerLeft(t *testing.T) {
	t.Parallel()
	o, p := withChallenge()
	p.challenge, p.left, p.stored = leaves, true, nil
	p.replay.Header.Del("Idempotent-Replayed")
	requireViolation(t, "only the replay ended the order", o)
	o.losses = []*loss{{cancelled: map[string]bool{"order-2": true}}}
	requireViolation(t, "", o)
}
