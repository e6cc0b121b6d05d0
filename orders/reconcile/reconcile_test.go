package reconcile_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
)

func (f *fixture) createMany(n int) []idempotency.Request {
	f.t.Helper()
	accounts := []uuid.UUID{f.Account, idempotencytest.Account(f.t, f.Pool)}
	requests := make([]idempotency.Request, n)
	var group errgroup.Group
	group.SetLimit(8)
	for i := range n {
		card := visa
		if i%4 == 3 {
			card = declinedCard
		}
		requests[i] = orderRequest(f.t, accounts[i%2], idempotency.Key(fmt.Sprintf("one-of-many-orders-%d", i)), card)
		group.Go(func() error {
			_, err := f.Create(context.Background(), requests[i])
			return err
		})
	}
	require.NoError(f.t, group.Wait())
	return requests
}

// Without discrepancies, only the provider's lists are read.
func TestRun_manyPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour, 8)
	f.createMany(110)
	for range 20 {
		f.insertForeignIntent("metadata[order_id]", uuid.NewString())
	}
	f.age()
	f.forget()

	report, err := f.run(func(c *reconcile.Config) {
		c.Since, c.Fix = 2*time.Hour, true
	})
	require.NoError(t, err)
	require.Empty(t, report.Discrepancies)
	require.Equal(t, []int{110, 20, 110}, []int{report.Intents, report.ForeignIntents, report.Orders})
	require.Equal(t, map[string]int{listIntents: 2, listRefunds: 1}, f.calls())
}

// Intents of another database are counted, not reported.
func TestRun_unknownAccount(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t)
	other := uuid.NewString()
	f.insertIntent("metadata[account_id]", other)
	f.insertRefund("payment_intent", f.insertCharge("metadata[account_id]", other))
	f.age()
	report := f.reconcile(true)
	require.Empty(t, report.Discrepancies)
	require.Equal(t, []int{0, 2, 0}, []int{report.Intents, report.UnknownIntents, report.Refunds})

	report, err := f.run(func(c *reconcile.Config) { c.LostRows, c.Fix = true, true })
	require.NoError(t, err)
	const notFixed = " => not fixed: the account is unknown, so the intent may belong to another database"
	require.Equal(t, []string{
		"unrecorded_charge: intent succeeded, order missing, unknown account" + notFixed,
		"unrecorded_refund: refund succeeded, our refund missing, unknown account",
		"orphaned_intent: intent requires_confirmation, order missing, unknown account" + notFixed,
	}, inWords(report))
}

func TestRun_edges(t *testing.T) {
	t.Parallel()
	const since = 50 * time.Minute
	for name, test := range map[string]struct {
		younger time.Duration // the order, than an hour
		lag     time.Duration // the intent, older than an hour
		intents int
		orders  int
		gets    int
	}{
		"the order before, the intent after":          {lag: -20 * time.Minute, intents: 1},
		"the order after, the intent before":          {younger: 20 * time.Minute, lag: time.Hour, orders: 1, gets: 2},
		"the order after, the intent a little before": {younger: 11 * time.Minute, lag: -8 * time.Minute, intents: 1, orders: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, time.Hour+test.lag, 1)
			require.Equal(t, http.StatusCreated, f.create(visa))
			f.age()
			f.exec("UPDATE orders SET created_at = created_at + $1::interval", test.younger)
			f.forget()
			report, err := f.run(func(c *reconcile.Config) { c.Since, c.Fix = since, true })
			require.NoError(t, err)
			require.Empty(t, report.Discrepancies)
			require.Equal(t, []int{test.intents, test.orders}, []int{report.Intents, report.Orders})
			require.Equal(t, test.gets, f.calls()[getIntent])
		})
	}
}

func TestRun_incomplete(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setup step
		err   string
	}{
		"the second page of intents fails": {
			setup: func(f *fixture) {
				for range 100 {
					f.insertForeignIntent()
				}
				fault(stripetest.NextPageError, listIntents)(f)
			},
			err: "list the provider's intents: payments: unknown, status 500",
		},
		"an intent cannot be read": {setup: fault(stripetest.Unavailable, getIntent), err: "get pi_UNKNOWN: payments: unknown, status 503"},
		"a proxy responds with a 404": {
			setup: func(f *fixture) {
				f.transport.replies = map[string]string{getIntent: `{"error":{"type":"invalid_request_error","message":"No such page."}}`}
			},
			err: "get pi_UNKNOWN: payments: not_executed, status 404",
		},
		"the database is down": {setup: func(f *fixture) { f.Pool.Close() }, err: "read the database's time: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newOldFixture(t, paid, intent(), sql("UPDATE orders SET payment_intent_id = 'pi_UNKNOWN'"))
			f.age()
			test.setup(f)
			f.forget()
			report, err := f.run(func(c *reconcile.Config) { c.Since, c.Fix = 2*time.Hour, true })
			require.ErrorContains(t, err, test.err)
			require.Zero(t, report)
			require.NotContains(t, f.calls(), cancel)
		})
	}
}

func TestRun_fixFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setup     step
		fixError  string
		cancelled bool
	}{
		"the provider is down for the cancel": {
			setup:    fault(stripetest.Unavailable, cancel),
			fixError: "payments: unknown, status 503: unreadable response",
		},
		"a stored 500 without an effect": {
			setup:    fault(stripetest.ErrorBefore, cancel),
			fixError: "payments: unknown, status 500, type api_error, request ID",
		},
		"a stored 500 after the effect": {setup: fault(stripetest.ErrorAfter, cancel), cancelled: true},
		"the intent cannot be read": {
			setup:    fault(stripetest.Unavailable, getIntent),
			fixError: "get ID: payments: unknown, status 503: unreadable response",
		},
		"the client of the lost order retries": {
			setup: func(f *fixture) {
				f.transport.after = map[string]func(){listRefunds: func() {
					require.Equal(f.t, http.StatusCreated, f.create(visa))
				}}
			},
			fixError: "it has changed since it was listed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newOldFixture(t, stopBefore(confirm), loseOrder)
			f.age()
			test.setup(f)
			report := f.reconcile(true)
			require.Len(t, report.Discrepancies, 1)
			require.Equal(t, reconcile.OrphanedIntent, report.Discrepancies[0].Kind)
			require.Equal(t, test.fixError, anyID.ReplaceAllString(report.Discrepancies[0].FixError, "ID"))
			require.Equal(t, test.cancelled, report.Open() == 0)
			require.Empty(t, f.Stripe.OrdersChargedTwice())
		})
	}
}
