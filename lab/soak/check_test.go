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

func response(status int, body string) (stored []answer, replay *client.Response) {
	first := client.Response{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
	again := first
	again.Header = http.Header{"Content-Type": {"application/json"}, "Idempotent-Replayed": {"true"}}
	return []answer{{Response: first}}, &again
}

func newExchanges(key string, status int, body string) exchanges {
	e := exchanges{key: client.Key(key)}
	e.stored, e.replay = response(status, body)
	return e
}

const declinedBody = `{"type":"/problems/payment-declined","status":402,"retry":"new-key","order_id":"order-2"}`

// valid returns an observation without a violation: a paid order with a refund and a
// rejected refund, and a declined order.
func valid() observation {
	refunded := &refund{amount: 300, want: http.StatusCreated, exchanges: newExchanges("refund", http.StatusCreated,
		`{"id":"refund-1","order_id":"order-1","amount":300,"currency":"usd","provider_refund_id":"re_1"}`)}
	tooMuch := &refund{amount: 9000, want: http.StatusUnprocessableEntity, exchanges: newExchanges("too much",
		http.StatusUnprocessableEntity, `{"type":"/problems/refund-exceeds-remaining","status":422,"retry":"never"}`)}
	tooMuch.stored = nil
	return observation{
		purchases: []*purchase{
			{
				exchanges: newExchanges("paid", http.StatusCreated, `{"id":"order-1","status":"paid","amount":1000,"currency":"usd"}`),
				email:     "a@example.com", amount: 1000, want: http.StatusCreated, refunds: []*refund{refunded, tooMuch},
			},
			{
				exchanges: newExchanges("declined", http.StatusPaymentRequired, declinedBody),
				email:     "b@example.com", amount: 2000, want: http.StatusPaymentRequired,
			},
		},
		charges:  []stripetest.Charge{{OrderID: "order-1", Amount: 1000, Refunded: 300, Currency: "usd"}},
		refunds:  []stripetest.Refund{{ID: "re_1", Name: "refund-1", Amount: 300, Currency: "usd", Status: "succeeded"}},
		receipts: map[string]int{"a@example.com": 2}, // a second receipt is allowed
	}
}

// withShop adds a purchase of the example shop, paid after a decline.
func withShop(o observation) observation {
	o.charges = append(o.charges, stripetest.Charge{OrderID: "order-4", Amount: 700})
	o.shop = []shopPurchase{{State: "paid", OrderID: "order-4", Amount: 700, orders: []string{"order-3", "order-4"}}}
	return o
}

func TestCheck_valid(t *testing.T) {
	t.Parallel()
	require.Empty(t, check(withShop(valid())))
}

// TestSums_addUp also has an order that was paid with a new key, and one whose key an operator expired
// after its receipt was sent.
func TestSums_addUp(t *testing.T) {
	t.Parallel()
	o := withShop(valid())
	o.purchases[0].created, o.purchases[1].created = "order-1", "order-2"
	o.purchases[1].again = &purchase{
		exchanges: newExchanges("again", http.StatusCreated, `{"id":"order-5"}`), email: "again-b@example.com",
	}
	o.purchases[1].again.created = "order-5"
	lost := &purchase{
		exchanges: newExchanges("lost", http.StatusCreated, `{"id":"order-6"}`), email: "c@example.com",
	}
	lost.created = "order-6"
	_, lost.replay = response(http.StatusUnprocessableEntity, `{"type":"/problems/idempotency-key-expired"}`)
	o.purchases = append(o.purchases, lost)
	o.losses = []*loss{{expired: map[string]bool{"order-6": true}}}
	o.charges = append(o.charges, stripetest.Charge{OrderID: "order-5"}, stripetest.Charge{OrderID: "order-6"})
	o.receipts["again-b@example.com"], o.receipts["c@example.com"], o.receipts["customer-0@shop.example.com"] = 1, 1, 3

	var text strings.Builder
	o.sums(&text)
	require.Equal(t, `orders	3	201: 1, 402: 1, lost by a failover, key expired: 1
charges	4	lost by a failover, key expired: 1, of the example shop: 1, of these orders: 1, paid with a new key: 1
receipts	4	lost by a failover, key expired: 1, of the example shop: 1, of these orders: 1, paid with a new key: 1
copies of receipts	3
`, text.String())
}

func TestCheck(t *testing.T) {
	t.Parallel()
	paid := func(o *observation) *purchase { return o.purchases[0] }
	declined := func(o *observation) *purchase { return o.purchases[1] }
	tests := map[string]struct {
		change func(o *observation)
		want   string
	}{
		"a second charge": {func(o *observation) { o.charges = append(o.charges, o.charges[0]) }, "charged 2 times"},
		"no charge":       {func(o *observation) { o.charges = nil }, "charged 0 times"},
		"another amount":  {func(o *observation) { o.charges[0].Amount++ }, "charged 1001 usd"},
		"another currency": {
			func(o *observation) { o.charges[0].Currency = "eur" }, "charged 1000 eur",
		},
		"a charge of a declined order": {
			func(o *observation) {
				o.charges = append(o.charges, stripetest.Charge{OrderID: "order-2", Amount: 2000})
			},
			"1 charges at the provider without a response 201",
		},
		"a wrong decline": {func(o *observation) { declined(o).want = http.StatusCreated }, "wrongly declined: status 402"},
		"a wrong success": {func(o *observation) { paid(o).want = http.StatusPaymentRequired }, "status 201 instead of 402"},
		"no response":     {func(o *observation) { paid(o).stored, paid(o).replay = nil, nil }, "no final response"},
		"a response only at the end": {
			func(o *observation) { paid(o).stored = nil }, "no final response",
		},
		"two final responses": {
			func(o *observation) {
				other, _ := response(http.StatusPaymentRequired, declinedBody)
				paid(o).stored = append(paid(o).stored, other...)
			}, "two final responses differ",
		},
		"another body in the replay": {
			func(o *observation) { paid(o).replay.Body = append([]byte(" "), paid(o).replay.Body...) }, "the replay differs",
		},
		"another Location in the replay": {
			func(o *observation) { paid(o).replay.Header.Set("Location", "/v1/orders/order-1") }, "the replay differs",
		},
		"a second execution instead of a replay": {
			func(o *observation) { paid(o).replay.Header.Del("Idempotent-Replayed") }, "the replay differs",
		},
		"no replay":                   {func(o *observation) { declined(o).replay = nil }, "no replay after the faults"},
		"a key that did not expire":   {func(o *observation) { declined(o).expires = true }, "the reaped key has not expired"},
		"no receipt":                  {func(o *observation) { o.receipts = nil }, "no receipt"},
		"a receipt of a failed order": {func(o *observation) { o.receipts["b@example.com"] = 1 }, "1 receipts of an order that was not paid"},
		"a second refund":             {func(o *observation) { o.refunds = append(o.refunds, o.refunds[0]) }, "refunded 2 times"},
		"no refund":                   {func(o *observation) { o.refunds = nil }, "refunded 0 times"},
		"a refund of another amount":  {func(o *observation) { o.refunds[0].Amount++ }, "refunded 301 as re_1"},
		"a refund without a request": {
			func(o *observation) { o.refunds = append(o.refunds, stripetest.Refund{Name: "refund-2"}) },
			"1 refunds refund-2 at the provider without a response 201",
		},
		"a wrong rejection of a refund": {
			func(o *observation) { paid(o).refunds[1].want = http.StatusCreated }, "refund: status 422 instead of 201",
		},
		"no response to a refund": {
			func(o *observation) { paid(o).refunds[1].replay = nil }, "no final response to a refund",
		},
		"more refunded than paid": {
			func(o *observation) {
				paid(o).amount, o.charges[0].Amount = 200, 200
				paid(o).exchanges = newExchanges("paid", http.StatusCreated, `{"id":"order-1","amount":200,"currency":"usd"}`)
			}, "refunded 300 of 200",
		},
		"a charge of the shop's open basket": {func(o *observation) { o.shop[0].State = "basket" }, "the page offers another payment, but the card is charged"},
		"another amount in the shop":         {func(o *observation) { o.shop[0].Amount++ }, "the page says that 701 is paid"},
		"another order in the shop":          {func(o *observation) { o.shop[0].orders = nil }, "the order of another purchase"},
		"a payment that does not end":        {func(o *observation) { o.shop[0].State = "paying" }, "the payment does not end"},
		"a payment that stopped":             {func(o *observation) { o.shop[0].State = "stopped" }, "stopped without a reason"},
		"an unfinished key":                  {func(o *observation) { o.unfinished = []string{"unfinished key 1"} }, "unfinished row: unfinished key 1"},
		"a remaining discrepancy": {
			func(o *observation) { o.discrepancies = []reconcile.Discrepancy{{Kind: reconcile.OpenIntent}} }, "orders reconcile: open_intent",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := withShop(valid())
			test.change(&o)
			require.Contains(t, fmt.Sprint(check(o)), test.want)
		})
	}
}

func TestCheck_expired(t *testing.T) {
	t.Parallel()
	for order, violations := range map[string]int{"order-2": 0, "order-3": 1} {
		o := valid()
		p := o.purchases[1]
		p.expires = true
		p.replay = &client.Response{
			Status: http.StatusUnprocessableEntity,
			Body:   fmt.Appendf(nil, `{"type":"/problems/idempotency-key-expired","order_id":%q}`, order),
		}
		require.Len(t, check(o), violations)
	}
}

func TestCheck_concurrentRefunds(t *testing.T) {
	t.Parallel()
	o := valid()
	p := o.purchases[0]
	p.refunds, p.atLeastOne = p.refunds[1:], true
	p.refunds[0].want, o.refunds = 0, nil
	require.Contains(t, fmt.Sprint(check(o)), "each of 1 concurrent refunds was rejected")
}

func TestNewPurchase(t *testing.T) {
	t.Parallel()
	statuses := map[int]int{}
	for i := range 300 {
		first, err := newPurchase(7, i, accounts)
		require.NoError(t, err)
		again, err := newPurchase(7, i, accounts)
		require.NoError(t, err)
		require.Equal(t, first, again)
		require.GreaterOrEqual(t, len(first.key), 16)
		statuses[first.want]++
	}
	require.Len(t, statuses, 3)
}

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
	o.discrepancies = []reconcile.Discrepancy{{Kind: reconcile.UnrecordedCharge, IDs: reconcile.IDs{OrderID: uuid.MustParse(id)}}}
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

// A failover may lose a refund that the provider's list then brings back under its own id, so that its key
// has expired (R27).
func TestCheck_broughtBack(t *testing.T) {
	t.Parallel()
	made := time.Now()
	for name, test := range map[string]struct {
		change func(o *observation, r *refund)
		want   string // "": no violation
	}{
		"after its response": {func(*observation, *refund) {}, ""},
		"before a response":  {func(_ *observation, r *refund) { r.stored = nil }, ""},
		"that was too much":  {func(_ *observation, r *refund) { r.stored, r.amount = nil, 299 }, "the response has 300"},
		"twice":              {func(o *observation, _ *refund) { o.refunds = append(o.refunds, o.refunds[0]) }, "refunded 2 times"},
		"twice, before a response": {
			func(o *observation, r *refund) { r.stored, o.refunds = nil, append(o.refunds, o.refunds[0]) }, "2 refunds refund-1",
		},
		"made after the failover":  {func(o *observation, _ *refund) { o.refunds[0].Created += 5 }, "the replay differs"},
		"answered before the loss": {func(_ *observation, r *refund) { r.stored[0].at = made.Add(-time.Minute) }, "the replay differs"},
		"without a failover":       {func(o *observation, _ *refund) { o.losses = nil }, "the replay differs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := valid()
			r := o.purchases[0].refunds[0]
			r.created, r.stored[0].at, o.refunds[0].Created = "refund-1", made, made.Unix()
			r.replay = &client.Response{Status: http.StatusUnprocessableEntity, Body: []byte(`{"type":"/problems/idempotency-key-expired"}`)}
			o.losses = []*loss{{from: made.Add(-time.Second), until: made.Add(time.Second)}}
			test.change(&o, r)
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

// A cancel has 200 if and only if its order is not paid.
func TestCheck_cancel(t *testing.T) {
	t.Parallel()
	cancel := func(o *observation, purchase, status int, body string) {
		e := newExchanges("cancel", status, body)
		e.sent = time.Now()
		o.purchases[purchase].cancel = &e
	}
	const paid = `{"type":"/problems/order-not-cancelable","status":422,"retry":"never"}`
	o := valid()
	cancel(&o, 1, http.StatusOK, `{"status":"payment_failed"}`)
	cancel(&o, 0, http.StatusUnprocessableEntity, paid)
	o.purchases[0].cancel.stored = nil // it was rejected
	requireViolation(t, "", o)
	cancel(&o, 1, http.StatusUnprocessableEntity, paid)
	requireViolation(t, "the cancel has 422", o)
	o = valid()
	cancel(&o, 0, http.StatusOK, `{"status":"payment_failed"}`)
	requireViolation(t, "the cancel has 200", o)
	o.purchases[0].cancel.stored, o.purchases[0].cancel.replay = nil, nil
	requireViolation(t, "no final response to a cancel", o)

	o = valid()
	cancel(&o, 1, http.StatusOK, `{"status":"payment_failed"}`)
	p, at := o.purchases[1], time.Now()
	p.want, p.cancel.sent = http.StatusCreated, at
	p.stored, p.replay = response(http.StatusUnprocessableEntity, strings.Replace(windowOver, "charge_window_over", "payment_intent_canceled", 1))
	requireViolation(t, "wrongly declined: status 422", o)
	o.losses = []*loss{{from: at.Add(-time.Second), until: at.Add(time.Second)}}
	requireViolation(t, "", o)
}

// Each refund and dispute at the provider is in our records, and each change has reached the shop.
func TestCheck_changes(t *testing.T) {
	t.Parallel()
	one := map[string]bool{"event": true}
	observed := func() observation {
		o := valid()
		o.refunds[0].IntentID = "pi_1"
		o.disputes = []stripetest.Dispute{{ID: "dp_1", IntentID: "pi_1", Status: "lost"}}
		o.orders = []recordedOrder{{
			Order: "order-1", Intent: "pi_1", Status: "partially_refunded", Refunded: 300, Sum: 300,
			Refunds: map[string]string{"re_1": "succeeded"}, RefundIDs: []string{"refund-1"}, Disputes: map[string]string{"dp_1": "lost"},
		}, {Order: "order-2", Status: "payment_failed"}}
		o.events = map[string]map[string]bool{
			"order.paid order-1": one, "order.payment_failed order-2": one, "refund.created refund-1": one,
			"dispute.updated dp_1": {"first": true, "second": true},
		}
		return o
	}
	requireViolation(t, "", observed())
	for want, change := range map[string]func(o *observation){
		"at the provider map[re_1:succeeded re_2:pending]": func(o *observation) {
			o.refunds = append(o.refunds, stripetest.Refund{ID: "re_2", IntentID: "pi_1", Status: "pending"})
		},
		"its disputes are map[dp_1:won]":                   func(o *observation) { o.orders[0].Disputes["dp_1"] = "won" },
		"amount_refunded is 299":                           func(o *observation) { o.orders[0].Refunded = 299 },
		"no event order.payment_failed order-2":            func(o *observation) { delete(o.events, "order.payment_failed order-2") },
		"no event dispute.updated dp_1":                    func(o *observation) { delete(o.events, "dispute.updated dp_1") },
		"refund.created refund-1 reached the shop under 2": func(o *observation) { o.events["refund.created refund-1"] = map[string]bool{"a": true, "b": true} },
	} {
		o := observed()
		change(&o)
		requireViolation(t, want, o)
	}
}
