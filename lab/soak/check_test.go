//go:build unix

package main

import (
	"fmt"
	"net/http"
	"testing"

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
