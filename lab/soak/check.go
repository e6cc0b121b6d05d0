//go:build unix

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
)

// observation is the state of the system after a run, as clients and the provider see it.
type observation struct {
	purchases  []*purchase
	charges    []stripetest.Charge // the provider's ledger
	refunds    []stripetest.Refund
	receipts   map[string]int // by recipient
	disputes   []stripetest.Dispute
	orders     []recordedOrder
	events     map[string]map[string]bool // ids of the events that the endpoint has accepted, by type and object
	unfinished []string                   // rows that should not exist
	losses     []*loss
	shop       []shopPurchase

	discrepancies []reconcile.Discrepancy // of the last orders reconcile
	failed        []string                // commands
}

// exchanges are the final responses of one key. The API must replay the first one.
type exchanges struct {
	account int
	key     client.Key
	sent    time.Time // the first time
	created string    // the order or refund that the key creates (R5), which its responses may not name
	order   string    // and its intent, if the customer had to approve the payment
	intent  string
	stored  []answer         // that differ; more than one is an error, unless rows were lost
	replay  *client.Response // after all faults
}

type answer struct {
	client.Response
	at time.Time
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

// sums writes how many orders, charges and receipts there are, each as a sum of its kinds.
func (o observation) sums(w io.Writer) {
	const byOperator = "lost by a failover, key expired" // a charge is refunded
	c := &checker{observation: o}
	finals, copies := map[string]int{}, 0
	kinds := map[string]string{} // of an order and of a recipient
	for _, first := range o.purchases {
		kind := "of these orders"
		for p := first; p != nil; p = p.again {
			final := "no response"
			switch {
			case c.ended(&p.exchanges):
				final, kind = byOperator, byOperator
			case len(p.stored) > 0:
				final = strconv.Itoa(p.stored[len(p.stored)-1].Status)
			case p.replay != nil:
				final = strconv.Itoa(p.replay.Status)
			}
			if p == first {
				finals[final]++
			}
			kinds[p.created], kinds[p.email] = kind, kind
			kind = "paid with a new key"
		}
	}
	charges, receipts := map[string]int{}, map[string]int{}
	for _, charge := range o.charges {
		kind := cmp.Or(kinds[charge.OrderID], "of the example shop")
		if c.expired(charge.OrderID) {
			kind = byOperator
		}
		charges[kind]++
	}
	for recipient, n := range o.receipts {
		receipts[cmp.Or(kinds[recipient], "of the example shop")]++
		copies += n - 1
	}
	fmt.Fprintf(w, "orders\t%d\t%s\n", len(o.purchases), list(finals))
	fmt.Fprintf(w, "charges\t%d\t%s\n", len(o.charges), list(charges))
	fmt.Fprintf(w, "receipts\t%d\t%s\n", len(o.receipts), list(receipts))
	fmt.Fprintf(w, "copies of receipts\t%d\n", copies)
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
		if refund.Name != "" { // otherwise it was made in the dashboard
			c.refundsOf[refund.Name] = append(c.refundsOf[refund.Name], refund)
		}
	}
	for _, p := range o.purchases {
		for ; p != nil; p = p.again {
			c.purchase(p)
		}
	}
	for _, p := range o.shop {
		c.shopPurchase(p)
	}
	c.leftovers()
	c.changes()
	for _, row := range o.unfinished {
		c.add(&exchanges{}, "", "unfinished row: %s", row)
	}
	for _, text := range o.failed {
		c.add(&exchanges{}, "", "%s", text)
	}
	for _, l := range o.losses {
		for _, id := range l.acknowledged {
			if !l.named[id] {
				c.add(&exchanges{}, id, "the row is lost, and the runbook's commands did not name it")
			}
		}
	}
	return c.violations
}

// leftovers reports what belongs to no 201. An operator has refunded the lost charges
// whose keys were expired, and reconcile still lists them.
func (c *checker) leftovers() {
	refunded := map[string]bool{} // intents
	for order, charges := range c.chargesOf {
		ended := c.expired(order) && len(charges) == 1 && charges[0].Refunded == charges[0].Amount
		if !ended {
			c.add(&exchanges{}, order, "%d charges at the provider without a response 201", len(charges))
		}
		refunded[charges[0].IntentID] = ended
	}
	for name, refunds := range c.refundsOf {
		lost := func(r stripetest.Refund) bool { return refunded[r.IntentID] }
		if refunds = slices.DeleteFunc(refunds, lost); len(refunds) > 0 {
			c.add(&exchanges{}, "", "%d refunds %s at the provider without a response 201", len(refunds), name)
		}
	}
	for _, d := range c.discrepancies {
		if order := d.OrderID.String(); !c.expired(order) && d.Kind != "refund_failed_late" {
			c.add(&exchanges{}, order, "orders reconcile: %s, %s", d.Kind, d.Detail)
		}
	}
}

func (c *checker) add(e *exchanges, order, format string, args ...any) {
	c.violations = append(c.violations, violation{e.account, e.key, order, fmt.Sprintf(format, args...)})
}

func (c *checker) purchase(p *purchase) {
	if p.lateSecret > 0 {
		c.add(&p.exchanges, p.order, "a client secret was given out %s after the charge window", p.lateSecret)
	}
	var order client.Order
	response := c.finalResponse(&p.exchanges, &order, p.expires, p.left)
	switch {
	case response == nil:
		c.add(&p.exchanges, "", "no final response")
		return
	case c.ended(&p.exchanges):
		return // leftovers checks the money
	case !c.expected(p, *response):
		what := "status %d instead of %d: %s"
		if p.want == http.StatusCreated || p.approved {
			what = "wrongly declined: " + what
		}
		c.add(&p.exchanges, order.ID, what, response.Status, p.want, response.Body)
	}
	c.cancel(p, *response)
	receipts := c.receipts[p.email]
	if response.Status != http.StatusCreated {
		// A charge of this order stays in chargesOf and is reported there.
		if receipts > 0 {
			c.add(&p.exchanges, "", "%d receipts of an order that was not paid", receipts)
		}
		return
	}
	if p.again != nil {
		c.add(&p.exchanges, order.ID, "paid, and paid again with a new key")
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

// expected reports whether the status follows from what the customer and the provider did.
func (c *checker) expected(p *purchase, response client.Response) bool {
	want := p.want
	if p.approved {
		want = http.StatusCreated
	}
	problem := problemOf(response)
	switch {
	case response.Status == http.StatusCreated:
		return want == response.Status
	case p.approved:
		return false
	case problem.Code == "canceled" && p.cancel != nil:
		return true
	case (problem.Code == "canceled" || problem.Code == "payment_intent_canceled") && p.cancelForgotten:
		return len(c.losses) > 0
	case problem.Code == "payment_intent_canceled" && c.cancelMayBeLost(p):
		return true
	case problem.Code == "charge_window_over", problem.Code == "payment_not_created": // its order is not older than the first request
		return p.left || p.stored[len(p.stored)-1].at.Sub(p.sent) > chargeWindow-leaseDuration
	case c.cancelled(problem.OrderID):
		return true
	default:
		return want == response.Status && p.challenge != approvesLate && p.challenge != leaves
	}
}

// cancel compares the response of a cancel with that of its order. A charge of an order that was
// not paid stays in chargesOf.
func (c *checker) cancel(p *purchase, order client.Response) {
	if p.cancel == nil || p.cancel.sent.IsZero() {
		return
	}
	response := c.finalResponse(p.cancel, &client.Order{}, false, false)
	paid := order.Status == http.StatusCreated
	switch {
	case response == nil:
		c.add(p.cancel, p.created, "no final response to a cancel")
	case response.Status == http.StatusOK && !paid, response.Status == http.StatusNotFound: // it came before the order
	case problemOf(*response).Type == notCancelableType && paid:
	default:
		c.add(p.cancel, p.created, "the cancel has %s; the order has %s", response, order)
	}
}

const notCancelableType = "/problems/order-not-cancelable"

func (c *checker) orderRefunds(p *purchase, order string) {
	var sum int64
	made := 0
	// The API does not know a lost refund until its client retries, so others are rejected by
	// the provider.
	lost := slices.ContainsFunc(p.refunds, func(r *refund) bool { return c.mayBeLost(&r.exchanges) || c.broughtBack(&r.exchanges) })
	for _, r := range p.refunds {
		var refund client.Refund
		response := c.finalResponse(&r.exchanges, &refund, false, false)
		switch {
		case response == nil:
			c.add(&r.exchanges, order, "no final response to a refund")
			continue
		case response.Status == http.StatusCreated:
		case c.broughtBack(&r.exchanges):
			found := c.refundsOf[r.created][0]
			refund = client.Refund{ID: found.Name, Amount: found.Amount, ProviderRefundID: client.Nullable(found.ID)}
		default: // refundsOf reports a refund at the provider
			if !lost && r.want != 0 && response.Status != r.want {
				c.add(&r.exchanges, order, "refund: status %d instead of %d: %s", response.Status, r.want, response.Body)
			}
			continue
		}
		if !lost && r.want != 0 && r.want != http.StatusCreated {
			c.add(&r.exchanges, order, "refund: status %d instead of %d: %s", response.Status, r.want, response.Body)
		}
		made++
		sum += refund.Amount
		refunds := c.refundsOf[refund.ID]
		delete(c.refundsOf, refund.ID)
		switch {
		case len(refunds) != 1:
			c.add(&r.exchanges, order, "refunded %d times", len(refunds))
		case refunds[0].Amount != refund.Amount || refunds[0].ID != string(refund.ProviderRefundID) || r.amount != 0 && refund.Amount != r.amount:
			c.add(&r.exchanges, order, "refunded %d as %s; the response has %d as %s and the request %d",
				refunds[0].Amount, refunds[0].ID, refund.Amount, refund.ProviderRefundID, r.amount)
		}
	}
	if sum > p.amount {
		c.add(&p.exchanges, order, "refunded %d of %d", sum, p.amount)
	}
	if len(p.refunds) > 0 && made == 0 && p.atLeastOne && !lost {
		c.add(&p.exchanges, order, "each of %d concurrent refunds was rejected", len(p.refunds))
	}
}

// finalResponse returns the last response of a key and decodes it. All responses and the
// replay must be equal, unless rows were lost. A rejection is not stored: its last response
// counts, as for a customer who left.
func (c *checker) finalResponse(e *exchanges, target any, expired, left bool) *client.Response {
	var last client.Response
	switch {
	case len(e.stored) > 0:
		last = e.stored[len(e.stored)-1].Response
	case e.replay == nil || isStored(*e.replay) && !left:
		return nil
	default:
		last = *e.replay
	}
	for i, next := range e.stored[min(1, len(e.stored)):] {
		if former := e.stored[i]; !c.restored(former, next.Response) {
			c.add(e, "", "two final responses differ: %s; first: %s", next, former)
		}
	}
	switch {
	case e.replay == nil:
		c.add(e, "", "no replay after the faults; last: %s", last)
	case len(e.stored) == 0 && problemOf(last).Code == "payment_intent_canceled" && len(c.losses) > 0: // see expected, which knows the cancel
	case len(e.stored) == 0 && isStored(last) && !last.Replayed() && !c.cancelled(orderOf(last)):
		c.add(e, "", "only the replay ended the order of a customer who left: %s", last)
	case c.ended(e), len(e.stored) == 0, c.broughtBack(e):
	case expired:
		if problem := problemOf(*e.replay); problem.Type != expiredType || problem.OrderID != orderOf(last) {
			c.add(e, "", "the reaped key has not expired: %s; last: %s", e.replay, last)
		}
	case (!e.replay.Replayed() || !same(last, *e.replay)) && !c.restored(e.stored[len(e.stored)-1], *e.replay):
		c.add(e, "", "the replay differs: %s; last: %s", e.replay, last)
	}
	if last.Status == http.StatusCreated {
		if err := json.Unmarshal(last.Body, target); err != nil {
			c.add(e, "", "unreadable: %s", last)
		}
	}
	return &last
}

const expiredType = "/problems/idempotency-key-expired"

// ended reports whether the runbook's commands have expired the key, because its order was
// lost. The response names no order then.
func (c *checker) ended(e *exchanges) bool {
	return e.replay != nil && problemOf(*e.replay).Type == expiredType && problemOf(*e.replay).OrderID == "" && c.expired(e.created)
}

// broughtBack reports whether a failover has lost the refund and its key, and the provider's list has
// recorded the refund under its own id before the client retried, so that the retry is 422 (R27).
func (c *checker) broughtBack(e *exchanges) bool {
	if e.replay == nil || problemOf(*e.replay).Type != expiredType {
		return false
	}
	refunds := c.refundsOf[e.created]
	return len(refunds) == 1 && slices.ContainsFunc(c.losses, func(l *loss) bool {
		made := time.Unix(refunds[0].Created, 0)
		return made.After(l.from.Add(-time.Second)) && made.Before(l.until) && (len(e.stored) == 0 || l.includes(e.stored[0]))
	})
}

func (c *checker) expired(order string) bool {
	return slices.ContainsFunc(c.losses, func(l *loss) bool { return l.expired[order] })
}

func (c *checker) cancelled(order string) bool {
	return slices.ContainsFunc(c.losses, func(l *loss) bool { return l.cancelled[order] })
}

func (c *checker) mayBeLost(e *exchanges) bool {
	return slices.ContainsFunc(c.losses, func(l *loss) bool { return len(e.stored) > 0 && l.includes(e.stored[0]) })
}

// cancelMayBeLost reports whether a failover may have lost our records of a cancel, but not that the provider
// has cancelled the intent.
func (c *checker) cancelMayBeLost(p *purchase) bool {
	return p.cancel != nil && !p.cancel.sent.IsZero() &&
		slices.ContainsFunc(c.losses, func(l *loss) bool { return p.cancel.sent.Before(l.until) })
}

func (l *loss) includes(a answer) bool { return a.at.After(l.from) && a.at.Before(l.until) }

// restored reports whether a lost response may be followed by another one: the same order
// or refund with new times, or another failure.
func (c *checker) restored(lost answer, next client.Response) bool {
	if !slices.ContainsFunc(c.losses, func(l *loss) bool { return l.includes(lost) }) {
		return false
	}
	if lost.Status != http.StatusCreated || next.Status != http.StatusCreated {
		return lost.Status != http.StatusCreated && next.Status != http.StatusCreated
	}
	var a, b map[string]any
	if json.Unmarshal(lost.Body, &a) != nil || json.Unmarshal(next.Body, &b) != nil {
		return false
	}
	for _, volatile := range []string{"created_at", "paid_at", "status"} {
		delete(a, volatile)
		delete(b, volatile)
	}
	return reflect.DeepEqual(a, b)
}

// same compares everything that is stored (R14).
func same(a, b client.Response) bool {
	return a.Status == b.Status && bytes.Equal(a.Body, b.Body) &&
		a.Header.Get("Content-Type") == b.Header.Get("Content-Type") && a.Header.Get("Location") == b.Header.Get("Location")
}

func isStored(r client.Response) bool {
	problem := problemOf(r)
	return r.Status == http.StatusCreated || r.Status == http.StatusOK || problem.Type == "/problems/payment-declined" || problem.Type == "/problems/payment-refused"
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
