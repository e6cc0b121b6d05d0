//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

// refundFails is a card whose refunds can fail after they have succeeded.
const refundFails = "pm_card_refundFail"

// settled is the age of a charge or refund whose row no failover loses any more.
const settled = 10 * time.Second

// changeAtProvider does what the service only hears of afterwards: a refund in the dashboard, a dispute,
// or a refund that fails at the bank. No webhook tells of it, so the list of events must. It leaves out
// orders whose customers plan refunds, because it would change their outcome.
func (f *faults) changeAtProvider(ctx context.Context, r *rand.Rand) {
	f.operating.RLock()
	defer f.operating.RUnlock()
	stripe := f.system.provider.stripe
	charges := stripe.Charges()
	if len(charges) == 0 {
		return
	}
	choice := r.IntN(6)
	if choice >= 4 && f.failRefund(charges) {
		f.customers.count("refunds that failed later")
		return
	}
	charge := charges[r.IntN(len(charges))]
	p := f.customers.purchaseOf(charge.OrderID)
	if p == nil || len(p.refunds) > 0 || charge.Refunded > 0 || time.Since(time.Unix(charge.Created, 0)) < settled {
		return
	}
	var err error
	what := ""
	switch choice {
	case 0:
		what = "refunds of the dashboard, in part"
		_, err = stripe.RefundAtDashboard(charge.IntentID, 1+r.Int64N(charge.Amount-1), "requested_by_customer")
	case 1:
		what = "refunds of the dashboard, in full"
		_, err = stripe.RefundAtDashboard(charge.IntentID, 0, "expired_uncaptured_charge")
	case 2:
		what = "disputes"
		err = f.dispute(ctx, r, charge, "needs_response", "under_review", []string{"won", "lost"}[r.IntN(2)])
	default:
		what = "inquiries"
		err = f.dispute(ctx, r, charge, "warning_needs_response", "warning_closed")
	}
	if err == nil { // otherwise a former dispute or refund does not allow it
		f.customers.count(what)
	}
}

// failRefund lets a refund fail that has succeeded, if there is one. Before its response is stored, a refund
// that fails is no 201. An operator's refund of a lost order stays, because no client would repeat it.
func (f *faults) failRefund(charges []stripetest.Charge) bool {
	stripe := f.system.provider.stripe
	orders := map[string]string{}
	for _, charge := range charges {
		orders[charge.IntentID] = charge.OrderID
	}
	for _, refund := range stripe.Refunds() {
		order := orders[refund.IntentID]
		p := f.customers.purchaseOf(order)
		if refund.Status != "succeeded" || p == nil || p.method != refundFails || time.Since(time.Unix(refund.Created, 0)) <= settled {
			continue
		}
		durable := refund.Name == "" || f.customers.refunded(refund.Name)
		if durable && !f.expired(order) && stripe.Settle(refund.ID, false) == nil {
			return true
		}
	}
	return false
}

// expired reports whether an operator has expired the key of a lost order.
func (f *faults) expired(order string) bool {
	return slices.ContainsFunc(f.losses, func(l *loss) bool { return l.expired[order] })
}

// dispute changes the status of a new dispute from moment to moment.
func (f *faults) dispute(ctx context.Context, r *rand.Rand, charge stripetest.Charge, statuses ...string) error {
	stripe := f.system.provider.stripe
	id, err := stripe.Dispute(charge.IntentID, charge.Amount, "fraudulent", statuses[0])
	if err != nil {
		return err
	}
	wait := time.Duration(r.Int64N(int64(5 * time.Second)))
	f.background.Go(func() {
		for _, status := range statuses[1:] {
			pause(ctx, wait)
			_ = stripe.UpdateDispute(id, status) // the dispute exists
		}
	})
	return nil
}

// recordedOrder is what our database says of an order with an intent.
type recordedOrder struct {
	Order, Intent, Status string
	Account               int
	Refunded              int64
	Refunds               map[string]string // statuses by the provider's id
	RefundIDs             []string
	Sum                   int64             // of the refunds that are not void
	Disputes              map[string]string // statuses by the provider's id
}

// recordedOrders reads the orders of the accounts, and the events that each must have led to.
func (s *system) recordedOrders(ctx context.Context) (orders []recordedOrder, err error) {
	texts, err := s.database.rows(ctx, `
SELECT json_build_object(
           'order', o.id,
           'account', array_position($1::uuid[], o.account_id) - 1,
           'intent', coalesce(o.payment_intent_id, ''),
           'status', o.status,
           'refunded', o.amount_refunded,
           'refunds', (SELECT coalesce(json_object_agg(provider_refund_id, r.status), '{}') FROM refunds r WHERE r.account_id = o.account_id AND order_id = o.id AND provider_refund_id IS NOT NULL),
           'refundIDs', (SELECT coalesce(json_agg(r.id), '[]') FROM refunds r WHERE r.account_id = o.account_id AND order_id = o.id AND provider_refund_id IS NOT NULL),
           'sum', (SELECT coalesce(sum(r.amount), 0) FROM refunds r WHERE r.account_id = o.account_id AND order_id = o.id AND provider_refund_id IS NOT NULL AND r.status NOT IN ('failed', 'canceled')),
           'disputes', (SELECT coalesce(json_object_agg(d->>'id', d->>'status'), '{}') FROM jsonb_array_elements(o.disputes) AS d)
       )::text
  FROM orders AS o
 WHERE account_id = ANY($1)`, s.accounts)
	for _, text := range texts {
		var order recordedOrder
		if err := json.Unmarshal([]byte(text), &order); err != nil {
			return nil, err
		}
		orders = append(orders, order)
	}
	return orders, err
}

// changes compares the orders with the provider's refunds and disputes, and with the events that the
// endpoint has received.
func (c *checker) changes() {
	refunds, disputes := map[string]map[string]string{}, map[string]map[string]string{} // by intent
	put := func(all map[string]map[string]string, intent, id, status string) {
		if all[intent] == nil {
			all[intent] = map[string]string{}
		}
		all[intent][id] = status
	}
	for _, r := range c.refunds {
		put(refunds, r.IntentID, r.ID, r.Status)
	}
	for _, d := range c.disputes {
		put(disputes, d.IntentID, d.ID, d.Status)
	}
	for _, o := range c.orders {
		e := &exchanges{account: o.Account}
		if o.Intent != "" && !maps.Equal(o.Refunds, refunds[o.Intent]) {
			c.add(e, o.Order, "its refunds are %v; at the provider %v", o.Refunds, refunds[o.Intent])
		}
		if o.Intent != "" && !maps.Equal(o.Disputes, disputes[o.Intent]) {
			c.add(e, o.Order, "its disputes are %v; at the provider %v", o.Disputes, disputes[o.Intent])
		}
		if o.Sum != o.Refunded {
			c.add(e, o.Order, "amount_refunded is %d; the refunds are %d", o.Refunded, o.Sum)
		}
		for _, what := range o.events() {
			if n := len(c.events[what]); n == 0 {
				c.add(e, o.Order, "no event %s reached the shop", what)
			} else if n > 1 && !strings.Contains(what, ".updated") {
				c.add(e, o.Order, "event %s reached the shop under %d ids", what, n)
			}
		}
	}
}

// events returns the events of the order, as [endpoint.ServeHTTP] counts them.
func (o recordedOrder) events() (all []string) {
	switch o.Status {
	case "payment_failed":
		all = append(all, "order.payment_failed "+o.Order)
	case "paid", "partially_refunded", "refunded":
		all = append(all, "order.paid "+o.Order)
	}
	for _, id := range o.RefundIDs {
		all = append(all, "refund.created "+id)
	}
	for id := range o.Disputes {
		all = append(all, "dispute.updated "+id)
	}
	return all
}

// eventSecret signs the events.
const eventSecret = "whsec_dGhlIHNlY3JldCB0aGF0IHNpZ25zIHRoZSBldmVudHMgb2YgdGhlIHNvYWs="

// endpoint receives the events of all accounts, and forwards those of the storefront. Some are rejected, some
// are accepted too late for the worker, and it is down at the beginning.
type endpoint struct {
	server *http.Server
	url    string
	down   time.Time // until
	shop   atomic.Pointer[storefront]

	mu       sync.Mutex
	random   *rand.Rand
	ids      map[string]map[string]bool // of the events, by type and object
	received int
	rejected int
}

func startEndpoint(ctx context.Context, o options) (*endpoint, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &endpoint{
		url: "http://" + listener.Addr().String(), down: time.Now().Add(o.duration / 4),
		random: random(o.seed, eventStream), ids: map[string]map[string]bool{},
	}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = s.server.Serve(listener) }()
	return s, nil
}

func (s *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var event client.Event
	if err == nil {
		event, err = client.VerifyEvent([]string{eventSecret}, r.Header, body, time.Now())
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	accepted, choice := s.record(event)
	switch shop := s.shop.Load(); {
	case !accepted:
		w.WriteHeader(http.StatusServiceUnavailable)
	case shop != nil && event.AccountID == shop.account.String():
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.URL.Path = shopEvents
		shop.ServeHTTP(w, r)
	case choice == 3:
		panic(http.ErrAbortHandler) // accepted without a response
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// record counts an event unless it is rejected.
func (s *endpoint) record(event client.Event) (accepted bool, choice int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	choice = s.random.IntN(200)
	if choice < 3 || time.Now().Before(s.down) {
		s.rejected++
		return false, choice
	}
	object := event.Data.OrderID
	switch {
	case event.Data.RefundID != "":
		object = event.Data.RefundID
	case event.Data.DisputeID != "":
		object = event.Data.DisputeID
	}
	what := event.Type + " " + object
	if s.ids[what] == nil {
		s.ids[what] = map[string]bool{}
	}
	s.ids[what][event.ID] = true
	s.received++
	return true, choice
}

func (s *endpoint) events() map[string]map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ids)
}

func (s *endpoint) report(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	types := map[string]int{}
	distinct := 0
	for what, ids := range s.ids {
		types[strings.Fields(what)[0]] += len(ids)
		distinct += len(ids)
	}
	fmt.Fprintf(w, "events to the shop\t%d\t%s; %d copies, %d rejected\n", distinct, list(types), s.received-distinct, s.rejected)
}
