package orders_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// buyMany makes n orders, every fourth of them declined, of two accounts, and
// returns what was asked for.
func (s *shop) buyMany(n int) []orders.CreateRequest {
	s.t.Helper()
	accounts := []uuid.UUID{s.account, idempotencytest.Account(s.t, s.pool)}
	requests := make([]orders.CreateRequest, n)
	var group errgroup.Group
	group.SetLimit(8)
	for i := range n {
		card := visa
		if i%4 == 3 {
			card = declinedCard
		}
		requests[i] = request(s.t, accounts[i%2], idempotency.Key(fmt.Sprintf("one-of-very-many-%d", i)), card)
		group.Go(func() error {
			_, err := s.service.Create(context.Background(), requests[i])
			return err
		})
	}
	require.NoError(s.t, group.Wait())
	return requests
}

// Books that agree give a report without differences, at the cost of the list:
// whatever it shows is not asked for again.
func TestReconcile_manyPages(t *testing.T) {
	t.Parallel()
	s := openAnHourAgo(t, terms{conns: 8, crowd: true})
	s.buyMany(330)
	for range 20 {
		s.behind("/v1/payment_intents", url.Values{"amount": {"500"}, "currency": {"usd"}, "metadata[order_id]": {uuid.NewString()}})
	}
	s.anHourLater()

	var fractions []float64
	report, err := s.service.Reconcile(t.Context(), orders.ReconcileConfig{
		Since: 2 * time.Hour, Grace: grace, Fix: true, Progress: func(fraction float64) { fractions = append(fractions, fraction) },
	})
	require.NoError(t, err)
	require.Empty(t, report.Differences)
	require.Equal(t, []int{330, 20, 330}, []int{report.Intents, report.ForeignIntents, report.Orders})
	require.Equal(t, "list 200 ×4", s.wire.said())
	require.Len(t, fractions, 4)
	require.True(t, slices.IsSorted(fractions))
	for _, fraction := range fractions {
		require.InDelta(t, 0.5, fraction, 0.05)
	}
}

// What a failover or a restore lost, in whichever order, is listed charge by
// charge, and a client that comes back with its key brings the order back
// (RELIABILITY.md D12, D14).
func TestReconcile_lostRows(t *testing.T) {
	t.Parallel()
	s := openAnHourAgo(t, terms{conns: 8, crowd: true})
	requests := s.buyMany(240)
	lost := map[uuid.UUID]orders.CreateRequest{}
	for i := 0; i < len(requests); i += 3 {
		part := s.with(t, requests[i].Key)
		part.account = requests[i].AccountID
		part.lose()
		if len(s.stripe.ChargesByOrder(orderOf(part.account, part.key).String())) == 1 {
			lost[orderOf(part.account, part.key)] = requests[i]
		}
	}
	require.Len(t, lost, 60)
	s.anHourLater()

	report := s.reconcile(true)
	require.Len(t, report.Differences, len(lost))
	for _, d := range report.Differences {
		require.Equal(t, orders.KindChargeWithoutOrder, d.Kind)
		require.Equal(t, &orders.Money{Amount: basketAmount, Currency: "usd"}, d.AtProvider)
		req, known := lost[d.OrderID]
		require.True(t, known)
		require.Equal(t, req.AccountID, d.AccountID)
		require.Equal(t, idempotency.KeyID(req.AccountID, req.Key), d.KeyID)
		require.Equal(t, "201", say(s.service.Create(t.Context(), req)))
	}
	s.anHourLater()
	require.Empty(t, s.reconcile(false).Differences)
	require.Empty(t, s.stripe.OrdersChargedTwice())
}

// The grace is as short as it can be and orders are made all the time, so that
// each comparison meets some at every point. Keys whose run just failed are no
// false alarm: nobody works on them until their client retries.
func TestReconcile_whileTrafficRuns(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{conns: 8, crowd: true})
	s.stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: listEndpoint, Delay: 5 * time.Millisecond, Times: stripetest.Always})
	for _, endpoint := range []string{createEndpoint, confirmEndpoint} {
		s.stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: endpoint, Delay: 3 * time.Millisecond, Times: stripetest.Always})
		s.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: endpoint, After: 20, Times: 9})
	}
	over := make(chan struct{})
	var traffic errgroup.Group
	for client := range 6 {
		traffic.Go(func() error {
			for i := range 40 {
				card := []string{visa, visa, declinedCard}[i%3]
				req := request(t, s.account, idempotency.Key(fmt.Sprintf("client-%d-and-order-%d", client, i)), card)
				for {
					if _, err := s.service.Create(context.Background(), req); err == nil {
						break
					}
				}
			}
			return nil
		})
	}
	go func() {
		defer close(over)
		_ = traffic.Wait()
	}()
	looks := 0
	for running := true; running; looks++ {
		select {
		case <-over:
			running = false
		default:
		}
		report, err := s.service.Reconcile(t.Context(), orders.ReconcileConfig{Since: time.Hour, Grace: time.Millisecond})
		require.NoError(t, err)
		for _, d := range report.Differences {
			require.Equal(t, orders.KindKeyStuck, d.Kind, "%+v", d)
		}
	}
	require.Greater(t, looks, 5)
}

// An order and its intent may lie on different sides of the edge.
func TestReconcile_edges(t *testing.T) {
	t.Parallel()
	const since = 50 * time.Minute // less than all orders are old
	for name, test := range map[string]struct {
		orderAge time.Duration // less than an hour by
		clock    time.Duration // of the provider, behind ours by so much more than an hour
		intents  int
		orders   int
		calls    string
	}{
		"order and intent before":                      {calls: "list 200"},
		"the order before, the intent inside":          {clock: -20 * time.Minute, intents: 1, calls: "list 200"},
		"the order inside, the intent before":          {orderAge: 20 * time.Minute, orders: 1, calls: "list 200, get 200"},
		"the order inside, the intent a little before": {orderAge: 11 * time.Minute, clock: -8 * time.Minute, intents: 1, orders: 1, calls: "list 200"},
		"order and intent inside":                      {orderAge: 20 * time.Minute, clock: -20 * time.Minute, intents: 1, orders: 1, calls: "list 200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{clock: func() time.Time { return time.Now().Add(-time.Hour - test.clock) }})
			require.Equal(t, "201", say(s.buy(visa)))
			s.anHourLater()
			s.backDate(-test.orderAge)
			report, err := s.service.Reconcile(t.Context(), orders.ReconcileConfig{Since: since, Grace: grace, Fix: true})
			require.NoError(t, err)
			require.Empty(t, report.Differences)
			require.Equal(t, []int{test.intents, test.orders}, []int{report.Intents, report.Orders})
			require.Equal(t, test.calls, s.wire.said())
		})
	}
}

// A stuck key is found however old it is.
func TestReconcile_stuckForLong(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	s.stopAt(confirmEndpoint, visa)
	s.exec("UPDATE idempotency_keys SET created_at = created_at - interval '1 year', last_run_at = last_run_at - interval '1 year'")
	s.exec("UPDATE orders SET created_at = created_at - interval '1 year'")
	require.Equal(t, []string{stuckAt("charge_created")}, found(s.reconcile(false)))
}

// Where not everything could be looked at there is no report, and no fix.
func TestReconcile_couldNotLook(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(*shop)
		says   string
	}{
		"the second page fails": {
			before: func(s *shop) {
				for range 100 {
					s.behind("/v1/payment_intents", url.Values{"amount": {"500"}, "currency": {"usd"}})
				}
				s.inject(stripetest.NextPageError, listEndpoint)
			},
			says: "list the provider's intents: payments: unknown, status 500",
		},
		"the provider takes no list": {
			before: func(s *shop) { s.inject(stripetest.Unauthorized, listEndpoint) },
			says:   "list the provider's intents: payments: not run, status 401",
		},
		"one intent cannot be read": {
			before: func(s *shop) {
				s.exec("DELETE FROM idempotency_keys")
				s.exec("UPDATE orders SET status = 'paid', paid_at = created_at, payment_intent_id = 'pi_nobody'")
				s.inject(stripetest.Unavailable, getEndpoint)
			},
			says: "ask the provider for pi_nobody: payments: unknown, status 503: unreadable answer",
		},
		"something in between says that there is no such page": {
			before: func(s *shop) {
				s.exec("DELETE FROM idempotency_keys")
				s.exec("UPDATE orders SET status = 'paid', paid_at = created_at, payment_intent_id = 'pi_nobody'")
				s.wire.put(answering("get", 404, `"type":"invalid_request_error"`)(s))
			},
			says: "ask the provider for pi_nobody: payments: not run, status 404",
		},
		"the orders cannot be looked up": {
			before: func(s *shop) { s.exec("ALTER TABLE orders RENAME COLUMN amount TO elsewhere") },
			says:   "look up orders: ",
		},
		"the orders cannot be listed": {
			before: func(s *shop) { s.exec("ALTER TABLE orders RENAME COLUMN idempotency_key TO elsewhere") },
			says:   "list orders: ",
		},
		"the keys cannot be listed": {
			before: func(s *shop) { s.exec("ALTER TABLE idempotency_keys RENAME COLUMN last_error TO elsewhere") },
			says:   "list keys: ",
		},
		"the database is gone": {
			before: func(s *shop) { s.pool.Close() },
			says:   "read the database's time: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openAnHourAgo(t, terms{})
			s.stopAt(confirmEndpoint, visa)
			s.with(t, "an-intent-left-behind").plant(visa, nil)
			s.anHourLater()
			test.before(s)
			s.wire.forget()
			_, err := s.service.Reconcile(t.Context(), orders.ReconcileConfig{Since: 2 * time.Hour, Grace: grace, Fix: true})
			require.ErrorContains(t, err, test.says)
			require.NotRegexp(t, "create|confirm|cancel", s.wire.said())
		})
	}
}

func (s *shop) inject(fault stripetest.Fault, endpoint string) {
	s.stripe.Inject(stripetest.Rule{Fault: fault, Endpoint: endpoint, Times: stripetest.Always})
}

func TestReconcile_config(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	for _, config := range []orders.ReconcileConfig{{}, {Since: time.Hour}, {Since: grace, Grace: grace}, {Since: time.Hour, Grace: -grace}} {
		_, err := s.service.Reconcile(t.Context(), config)
		require.EqualError(t, err, "orders: Grace must be positive, and less than Since")
	}
	require.Empty(t, s.wire.said())
}
