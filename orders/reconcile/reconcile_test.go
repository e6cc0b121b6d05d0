package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
)

func TestRun_invalidConfig(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]reconcile.Config{
		"no grace":        {Since: time.Hour},
		"a short history": {Since: time.Hour, Grace: time.Hour},
	} {
		_, err := reconcile.Run(t.Context(), config)
		require.EqualError(t, err, "reconcile: Grace must be positive, and less than Since", name)
	}
}

func (f *fixture) createMany(n int) []orders.Request {
	f.t.Helper()
	accounts := []uuid.UUID{f.account, idempotencytest.Account(f.t, f.pool)}
	requests := make([]orders.Request, n)
	var group errgroup.Group
	group.SetLimit(8)
	for i := range n {
		card := visa
		if i%4 == 3 {
			card = declinedCard
		}
		requests[i] = orderRequest(f.t, accounts[i%2], idempotency.Key(fmt.Sprintf("one-of-many-orders-%d", i)), card)
		group.Go(func() error {
			_, err := f.service.Create(context.Background(), requests[i])
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

// Recent activity may be in progress, so it is neither compared nor counted.
func TestRun_recentCounts(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paidAndRefunded(visa))
	counts := func() []int {
		report := f.reconcile(false)
		require.Empty(t, report.Discrepancies)
		return []int{report.Intents, report.Orders, report.Refunds}
	}
	require.Equal(t, []int{0, 0, 0}, counts())
	f.age()
	require.Equal(t, []int{1, 1, 1}, counts())
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

// Orders are created concurrently, with the shortest grace. A key whose run has just failed
// is no false alarm: no run holds it until its client retries.
func TestRun_noFalseAlarms(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 0, 8)
	f.stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: listIntents, Delay: 5 * time.Millisecond, Times: stripetest.Always})
	for _, endpoint := range []string{createIntent, confirm} {
		f.stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: endpoint, Delay: 3 * time.Millisecond, Times: stripetest.Always})
		f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: endpoint, After: 20, Times: 9})
	}
	done := make(chan struct{})
	var clients errgroup.Group
	for client := range 6 {
		clients.Go(func() error {
			for i := range 12 {
				card := []string{visa, visa, declinedCard}[i%3]
				req := orderRequest(t, f.account, idempotency.Key(fmt.Sprintf("client-%d-and-order-%d", client, i)), card)
				for {
					if _, err := f.service.Create(context.Background(), req); err == nil {
						break
					}
				}
			}
			return nil
		})
	}
	go func() {
		defer close(done)
		_ = clients.Wait()
	}()
	runs := 0
	for running := true; running; runs++ {
		select {
		case <-done:
			running = false
		default:
		}
		report, err := f.run(func(c *reconcile.Config) { c.Since, c.Grace = time.Hour, time.Millisecond })
		require.NoError(t, err)
		for _, d := range report.Discrepancies {
			require.Equal(t, reconcile.KeyStuck, d.Kind, "%+v", d)
		}
	}
	require.Greater(t, runs, 5)
}

// A COMMIT may become visible long after its transaction began, for example when a
// synchronous standby returns. Between the reads of an order and of its key it is no false
// alarm.
func TestRun_commitMeanwhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour, 4)
	f.do(paid)
	f.age()
	f.do(sql("UPDATE orders SET status = 'pending', paid_at = NULL", `
UPDATE idempotency_keys
   SET recovery_point = 'charge_created',
       finished_at = NULL,
       response_code = NULL,
       response_headers = NULL,
       response_body = NULL`))
	tx, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	for _, statement := range []string{
		"LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE", // the read of the key waits
		finishKey,
		markPaid,
	} {
		_, err := tx.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	var compared errgroup.Group
	var report reconcile.Report
	compared.Go(func() (err error) {
		report, err = f.run(func(*reconcile.Config) {})
		return err
	})
	idempotencytest.AwaitLockWait(t, f.pool)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, compared.Wait())
	require.Empty(t, inWords(report))
}

func TestRun_edges(t *testing.T) {
	t.Parallel()
	const since = 50 * time.Minute // less than an hour, the age of an order
	for name, test := range map[string]struct {
		younger time.Duration // the order, than an hour
		lag     time.Duration // the intent, older than an hour
		intents int
		orders  int
		gets    int
	}{
		"order and intent before":                     {},
		"the order before, the intent after":          {lag: -20 * time.Minute, intents: 1},
		"the order after, the intent before":          {younger: 20 * time.Minute, orders: 1, gets: 1},
		"the order after, the intent a little before": {younger: 11 * time.Minute, lag: -8 * time.Minute, intents: 1, orders: 1},
		"order and intent after":                      {younger: 20 * time.Minute, lag: -20 * time.Minute, intents: 1, orders: 1},
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

// After an error there is no report, and nothing was fixed.
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
		"the list of refunds fails": {setup: fault(stripetest.Unavailable, listRefunds), err: "list the provider's refunds: payments: unknown, status 503"},
		"an intent cannot be read":  {setup: fault(stripetest.Unavailable, getIntent), err: "get pi_UNKNOWN: payments: unknown, status 503"},
		"a proxy responds with a 404": {
			setup: func(f *fixture) {
				f.transport.replies = map[string]string{getIntent: `{"error":{"type":"invalid_request_error","message":"No such page."}}`}
			},
			err: "get pi_UNKNOWN: payments: not executed, status 404",
		},
		"orders cannot be read":  {setup: sql("ALTER TABLE orders RENAME COLUMN amount TO x"), err: "read records: "},
		"refunds cannot be read": {setup: sql("ALTER TABLE refunds RENAME COLUMN amount TO x"), err: "read records: "},
		"keys cannot be read":    {setup: sql("ALTER TABLE idempotency_keys RENAME COLUMN last_error TO x"), err: "list keys: "},
		"the database is down":   {setup: func(f *fixture) { f.pool.Close() }, err: "read the database's time: "},
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

// An event arrives while the provider's list is read.
func TestRun_refundStatusChangesMeanwhile(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paidAndRefunded(pendingRefund))
	f.age()
	f.transport.after = map[string]func(){listRefunds: func() {
		f.settle(true)
		payload, signature, err := f.stripe.Event(webhookSecret, "refund.updated", f.stripe.Refunds()[0].ID)
		require.NoError(t, err)
		event, err := f.service.VerifyEvent(payload, signature)
		require.NoError(t, err)
		_, err = f.service.HandleEvent(t.Context(), event)
		require.NoError(t, err)
	}}
	require.Empty(t, f.discrepancies())
	require.Equal(t, 1, f.reconcile(false).Refunds)
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
			require.Empty(t, f.stripe.OrdersChargedTwice())
		})
	}
}

// The JSON that orders reconcile --json prints. It holds nothing that a client sent.
func TestReport_json(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paidAndRefunded(visa))
	f.exec("UPDATE orders SET amount = 4200")
	f.exec("UPDATE refunds SET amount = 1700")
	f.insertIntent("metadata[account_id]", uuid.NewString())
	f.age()
	report, err := f.run(func(c *reconcile.Config) { c.LostRows, c.Fix = true, true })
	require.NoError(t, err)
	text, err := json.Marshal(report)
	require.NoError(t, err)
	text = anyTime.ReplaceAll(anyID.ReplaceAll(text, []byte("ID")), []byte("TIME"))
	require.JSONEq(t, `{
		"since": "TIME",
		"until": "TIME",
		"intents": 2,
		"foreign_intents": 0,
		"unknown_intents": 0,
		"orders": 1,
		"refunds": 1,
		"discrepancies": [{
			"kind": "amount_mismatch",
			"account_id": "ID",
			"order_id": "ID",
			"key_id": "ID",
			"intent_id": "ID",
			"local": {"amount": 4200, "currency": "usd"},
			"provider": {"amount": 4300, "currency": "usd"},
			"created": "TIME",
			"detail": "intent succeeded, order partially_refunded, response 201",
			"fixed": false
		}, {
			"kind": "amount_mismatch",
			"account_id": "ID",
			"order_id": "ID",
			"refund_id": "ID",
			"key_id": "ID",
			"intent_id": "ID",
			"provider_refund_id": "ID",
			"local": {"amount": 1700, "currency": "usd"},
			"provider": {"amount": 1800, "currency": "usd"},
			"created": "TIME",
			"detail": "refund succeeded, our refund succeeded, response 201",
			"fixed": false
		}, {
			"kind": "orphaned_intent",
			"account_id": "ID",
			"order_id": "ID",
			"key_id": "ID",
			"intent_id": "ID",
			"provider": {"amount": 4300, "currency": "usd"},
			"created": "TIME",
			"detail": "intent requires_confirmation, order missing, unknown account",
			"fixed": false,
			"fix_error": "the account is unknown, so the intent may belong to another database"
		}]
	}`, string(text))
}

func TestRun_plans(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paidAndRefunded(visa))
	for table, changes := range map[string]string{
		"idempotency_keys": "'idempotency_key', t.idempotency_key || i",
		"orders":           "'idempotency_key', t.idempotency_key || i, 'payment_intent_id', t.payment_intent_id || i, 'created_at', t.created_at - interval '3 days'",
		"refunds":          "'idempotency_key', t.idempotency_key || i, 'provider_refund_id', t.provider_refund_id || i, 'created_at', t.created_at - interval '3 days'",
	} {
		f.exec(fmt.Sprintf(`
INSERT INTO %[1]s
SELECT (jsonb_populate_record(t, jsonb_build_object('id', gen_random_uuid(), %[2]s))).*
  FROM %[1]s AS t, generate_series(1, 1000) AS i`, table, changes))
	}
	f.exec("ANALYZE")
	f.age()
	f.pool.Reset() // drops the statements so far
	require.Empty(t, f.discrepancies())
	large := regexp.MustCompile(`Seq Scan on (idempotency_keys|orders|refunds)\b`)
	for _, plan := range idempotencytest.Plans(t, f.pool) {
		require.NotRegexp(t, large, plan.Text, plan.Statement)
	}
}
