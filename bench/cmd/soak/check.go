//go:build unix

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

// observation is the state of the system after a run, as clients and the provider see it.
type observation struct {
	purchases  []*purchase
	charges    []stripetest.Charge // the provider's ledger
	refunds    []stripetest.Refund
	receipts   map[string]int // by recipient
	unfinished []string       // rows that should not exist
	reconcile  []string       // discrepancies
}

// exchanges are the final responses of one key. The API must replay the first one.
type exchanges struct {
	account int
	key     client.Key
	stored  []client.Response // that differ; more than one is an error
	replay  *client.Response  // after all faults
}

type violation struct {
	account int
	key     client.Key
	order   string
	what    string
}

func (v violation) String() string {
	return fmt.Sprintf("account %d, key %s, order %s: %s", v.account, v.key, v.order, v.what)
}

type checker struct {
	observation
	chargesOf  map[string][]stripetest.Charge // by order
	refundsOf  map[string][]stripetest.Refund // by the refund's id in the API
	violations []violation
}

func check(o observation) []violation {
	c := &checker{observation: o, chargesOf: map[string][]stripetest.Charge{}, refundsOf: map[string][]stripetest.Refund{}}
	for _, charge := range o.charges {
		c.chargesOf[charge.OrderID] = append(c.chargesOf[charge.OrderID], charge)
	}
	for _, refund := range o.refunds {
		c.refundsOf[refund.Name] = append(c.refundsOf[refund.Name], refund)
	}
	for _, p := range o.purchases {
		c.purchase(p)
	}
	// The remaining charges and refunds belong to no 201.
	for order, charges := range c.chargesOf {
		c.add(&exchanges{}, order, "%d charges at the provider without a response 201", len(charges))
	}
	for name, refunds := range c.refundsOf {
		c.add(&exchanges{}, "", "%d refunds %s at the provider without a response 201", len(refunds), name)
	}
	for _, row := range o.unfinished {
		c.add(&exchanges{}, "", "unfinished row: %s", row)
	}
	for _, line := range o.reconcile {
		c.add(&exchanges{}, "", "orders reconcile: %s", line)
	}
	return c.violations
}

func (c *checker) add(e *exchanges, order, format string, args ...any) {
	c.violations = append(c.violations, violation{e.account, e.key, order, fmt.Sprintf(format, args...)})
}

func (c *checker) purchase(p *purchase) {
	var order client.Order
	response := c.finalResponse(&p.exchanges, &order, p.expires)
	if response == nil {
		c.add(&p.exchanges, "", "no final response")
		return
	}
	if response.Status != p.want {
		what := "status %d instead of %d: %s"
		if p.want == http.StatusCreated {
			what = "wrongly declined: " + what
		}
		c.add(&p.exchanges, order.ID, what, response.Status, p.want, response.Body)
	}
	receipts := c.receipts[p.email]
	if response.Status != http.StatusCreated {
		// A charge of this order stays in chargesOf and is reported there.
		if receipts > 0 {
			c.add(&p.exchanges, "", "%d receipts of an order that was not paid", receipts)
		}
		return
	}
	charges := c.chargesOf[order.ID]
	delete(c.chargesOf, order.ID)
	switch {
	case len(charges) != 1:
		c.add(&p.exchanges, order.ID, "charged %d times", len(charges))
	case charges[0].Amount != p.amount || order.Amount != p.amount || charges[0].Currency != order.Currency:
		c.add(&p.exchanges, order.ID, "charged %d %s; the response has %d %s and the request %d",
			charges[0].Amount, charges[0].Currency, order.Amount, order.Currency, p.amount)
	}
	if receipts == 0 {
		c.add(&p.exchanges, order.ID, "no receipt")
	}
	c.orderRefunds(p, order.ID)
}

func (c *checker) orderRefunds(p *purchase, order string) {
	var sum int64
	made := 0
	for _, r := range p.refunds {
		var refund client.Refund
		response := c.finalResponse(&r.exchanges, &refund, false)
		switch {
		case response == nil:
			c.add(&r.exchanges, order, "no final response to a refund")
			continue
		case r.want != 0 && response.Status != r.want:
			c.add(&r.exchanges, order, "refund: status %d instead of %d: %s", response.Status, r.want, response.Body)
		}
		if response.Status != http.StatusCreated {
			continue // refundsOf reports a refund at the provider
		}
		made++
		sum += refund.Amount
		refunds := c.refundsOf[refund.ID]
		delete(c.refundsOf, refund.ID)
		switch {
		case len(refunds) != 1:
			c.add(&r.exchanges, order, "refunded %d times", len(refunds))
		case refunds[0].Amount != refund.Amount || refunds[0].ID != refund.ProviderRefundID || r.amount != 0 && refund.Amount != r.amount:
			c.add(&r.exchanges, order, "refunded %d as %s; the response has %d as %s and the request %d",
				refunds[0].Amount, refunds[0].ID, refund.Amount, refund.ProviderRefundID, r.amount)
		}
	}
	if sum > p.amount {
		c.add(&p.exchanges, order, "refunded %d of %d", sum, p.amount)
	}
	if len(p.refunds) > 0 && made == 0 && p.atLeastOne {
		c.add(&p.exchanges, order, "each of %d concurrent refunds was rejected", len(p.refunds))
	}
}

// finalResponse returns the response of a key and decodes it. All responses and the
// replay must be equal. A rejection is not stored: its last response counts.
func (c *checker) finalResponse(e *exchanges, target any, expired bool) *client.Response {
	if len(e.stored) == 0 {
		if e.replay == nil || isStored(*e.replay) {
			return nil
		}
		return e.replay
	}
	first := e.stored[0]
	for _, other := range e.stored[1:] {
		c.add(e, "", "two final responses differ: %s; first: %s", other, first)
	}
	switch {
	case e.replay == nil:
		c.add(e, "", "no replay after the faults; first: %s", first)
	case expired:
		if problem := problemOf(*e.replay); problem.Type != "/problems/idempotency-key-expired" || problem.OrderID != orderOf(first) {
			c.add(e, "", "the reaped key has not expired: %s; first: %s", e.replay, first)
		}
	case !e.replay.Replayed() || !same(first, *e.replay):
		c.add(e, "", "the replay differs: %s; first: %s", e.replay, first)
	}
	if first.Status == http.StatusCreated {
		if err := json.Unmarshal(first.Body, target); err != nil {
			c.add(e, "", "unreadable: %s", first)
		}
	}
	return &first
}

// same compares everything that is stored (R14).
func same(a, b client.Response) bool {
	return a.Status == b.Status && bytes.Equal(a.Body, b.Body) &&
		a.Header.Get("Content-Type") == b.Header.Get("Content-Type") && a.Header.Get("Location") == b.Header.Get("Location")
}

func isStored(r client.Response) bool {
	problem := problemOf(r)
	return r.Status == http.StatusCreated || problem.Type == "/problems/payment-declined" || problem.Type == "/problems/payment-refused"
}

func problemOf(r client.Response) (problem client.Problem) {
	_ = json.Unmarshal(r.Body, &problem) // other responses have no type
	return problem
}

// orderOf returns the id of the order that the request created.
func orderOf(r client.Response) string {
	var order client.Order
	_ = json.Unmarshal(r.Body, &order) // other responses have no id
	return cmp.Or(order.ID, problemOf(r).OrderID)
}
