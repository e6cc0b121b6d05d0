package reconcile_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/jobs"
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

	report, err := f.run(func(c *reconcile.Options) {
		c.Since, c.Fix = 2*time.Hour, true
	})
	require.NoError(t, err)
	require.Empty(t, report.Discrepancies)
	require.Equal(t, []int{110, 20}, []int{report.Intents, report.ForeignIntents})
	require.Equal(t, map[string]int{listIntents: 2, listRefunds: 1, listDisputes: 1}, f.calls())
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
	require.Equal(t, []int{0, 2, 1}, []int{report.Intents, report.ForeignIntents, report.Refunds})

	report, err := f.run(func(c *reconcile.Options) { c.LostRows, c.Fix = true, true })
	require.NoError(t, err)
	const notFixed = " => not fixed: the account is unknown, so the intent may belong to another database"
	require.ElementsMatch(t, []string{
		"unrecorded_charge: intent succeeded, order missing, unknown account" + notFixed,
		"unrecorded_refund: refund succeeded, payment not recorded, unknown account",
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
		gets    int
	}{
		"the order before, the intent after":          {lag: -20 * time.Minute, intents: 1},
		"the order after, the intent before":          {younger: 20 * time.Minute, lag: time.Hour, gets: 2},
		"the order after, the intent a little before": {younger: 11 * time.Minute, lag: -8 * time.Minute, intents: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, time.Hour+test.lag, 1)
			require.Equal(t, http.StatusCreated, f.create(visa))
			f.age()
			f.exec("UPDATE orders SET created_at = created_at + $1::interval", test.younger)
			f.forget()
			report, err := f.run(func(c *reconcile.Options) { c.Since, c.Fix = since, true })
			require.NoError(t, err)
			require.Empty(t, report.Discrepancies)
			require.Equal(t, test.intents, report.Intents)
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
			report, err := f.run(func(c *reconcile.Options) { c.Since, c.Fix = 2*time.Hour, true })
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

// newVeryOldFixture returns a fixture of a week ago, which only the first comparison lists.
func newVeryOldFixture(t *testing.T, steps ...step) (f *fixture, first reconcile.Report) {
	t.Helper()
	const week = 7 * 24 * time.Hour
	f = newFixture(t, week, 1)
	f.do(steps...)
	f.ageBy(week)
	first, err := f.run(func(c *reconcile.Options) { c.Since = 2 * week })
	require.NoError(t, err)
	return f, first
}

func (f *fixture) acknowledge(d reconcile.Discrepancy) {
	f.t.Helper()
	done, err := jobs.DeleteFailed(f.t.Context(), f.Pool, d.ID, audit.Operator{Actor: "grace", Reason: "refunded by hand"})
	require.NoError(f.t, err)
	require.EqualValues(f.t, 1, done)
}

// A discrepancy stays open after its time is outside of the comparison, until an operator acknowledges it.
func TestRun_staysFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setup []step
		want  string
	}{
		"a charge of a lost order": {[]step{paid, loseOrder}, "unrecorded_charge: intent succeeded, order missing"},
		"a record without an object": {
			[]step{paid, sql("UPDATE orders SET payment_intent_id = 'pi_UNKNOWN'"), func(f *fixture) {
				_, err := f.Create(f.t.Context(), orderRequest(f.t, f.Account, "the-key-of-another-order", visa))
				require.NoError(f.t, err)
			}},
			"missing_at_provider: intent missing, order paid, response 201",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireStaysFound(t, test.want, test.setup...)
		})
	}
}

func requireStaysFound(t *testing.T, want string, setup ...step) {
	t.Helper()
	f, first := newVeryOldFixture(t, setup...)
	require.Contains(t, inWords(first), want)
	for range 2 {
		next := f.reconcile(false)
		require.Equal(t, inWords(first), inWords(next))
		for i, d := range next.Discrepancies {
			require.Equal(t, first.Discrepancies[i].ID, d.ID)
			require.Equal(t, first.Discrepancies[i].FoundAt, d.FoundAt)
		}
		require.Equal(t, len(first.Discrepancies), next.Open())
	}
	for _, d := range first.Discrepancies {
		f.acknowledge(d)
	}
	require.Empty(t, f.discrepancies())
}

// An acknowledged discrepancy that is found again is not listed.
func TestRun_acknowledged(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paid, loseOrder)
	f.age()
	report := f.reconcile(true)
	require.Equal(t, 1, report.Open())
	f.acknowledge(report.Discrepancies[0])
	for range 2 {
		require.Empty(t, f.reconcile(true).Discrepancies)
	}
}

func TestRun_resolvedByItself(t *testing.T) {
	t.Parallel()
	f, first := newVeryOldFixture(t, paid, sql("UPDATE orders SET amount = 4200"))
	require.Len(t, first.Discrepancies, 1)
	f.exec("UPDATE orders SET amount = 4300")
	f.exec("UPDATE idempotency_keys SET updated_at = now()")
	require.Len(t, f.discrepancies(), 1, "a run may be active")
	f.exec("UPDATE idempotency_keys SET updated_at = created_at")
	require.Empty(t, f.discrepancies())
	open, err := jobs.Open(t.Context(), f.Pool)
	require.NoError(t, err)
	require.Empty(t, open)
}

// What other commands found is listed, too, and only an acknowledgement ends it.
func TestRun_findingOfAnotherCommand(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paid)
	f.age()
	batch := &pgx.Batch{}
	jobs.Report(batch, uuid.Nil, "events_missed", map[string]string{"since": "Monday"})
	require.NoError(t, f.Pool.SendBatch(t.Context(), batch).Close())
	report := f.reconcile(true)
	require.Len(t, report.Discrepancies, 1)
	require.JSONEq(t, `{"since": "Monday"}`, string(report.Discrepancies[0].Data))
	require.Equal(t, 1, report.Open())
	f.acknowledge(report.Discrepancies[0])
	require.Empty(t, f.discrepancies())
}

// A run that is killed before or after any statement or call forgets nothing, and the next one completes
// its fixes.
func TestRun_killedAnywhere(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paid, sql("UPDATE orders SET amount = 4200, created_at = created_at - interval '1 hour', paid_at = paid_at - interval '1 hour'",
		"UPDATE idempotency_keys SET created_at = created_at - interval '1 hour', updated_at = updated_at - interval '1 hour', finished_at = finished_at - interval '1 hour'"))
	fix := func(c *reconcile.Options) { c.Fix = true }
	for kill := 1; ; kill++ {
		f.exec("DELETE FROM staged_jobs WHERE kind = 'discrepancy'")
		f.insertIntent("metadata[order_id]", uuid.NewString())
		killed := f.killer.run(t.Context(), kill, func(ctx context.Context) error {
			_, err := f.Changes.Compare(ctx, options(fix))
			return err
		})
		if killed != nil {
			recorded, err := jobs.Open(t.Context(), f.Pool)
			require.NoError(t, err)
			if canceled := f.calls()[cancel] > 0; canceled {
				require.NotEmpty(t, recorded, "recorded before it is fixed, killed at %d", kill)
			}
		}
		report, err := f.run(fix)
		require.NoError(t, err)
		require.Equal(t, 1, report.Open(), "killed at %d: %v", kill, inWords(report))
		open, err := jobs.Open(t.Context(), f.Pool)
		require.NoError(t, err)
		require.Len(t, open, 1, "killed at %d", kill)
		require.Equal(t, "amount_mismatch", open[0].LastError)
		require.Equal(t, []string{"amount_mismatch: intent succeeded, order paid, response 201"}, f.discrepancies(), "the intent is cancelled")
		f.forget()
		if killed == nil {
			require.Greater(t, kill, 20, "it was killed often enough")
			return
		}
	}
}
