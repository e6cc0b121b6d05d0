package reconcile_test

import (
	"context"
	"encoding/json"
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
	"example.com/orders-api/orders"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
)

// Without discrepancies, only the provider's lists are read.
func TestRun_manyPages(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Connections: 8, Concurrent: true, Clock: func() time.Time { return time.Now().Add(-time.Hour) }})
	accounts := []uuid.UUID{f.Account, idempotencytest.Account(t, f.Pool)}
	var group errgroup.Group
	group.SetLimit(8)
	for i := range 110 {
		card := []string{Visa, Visa, Visa, DeclinedCard}[i%4]
		req := OrderRequest(t, accounts[i%2], idempotency.Key(fmt.Sprintf("one-of-many-orders-%d", i)), card)
		group.Go(func() error {
			_, err := f.Create(context.Background(), req)
			return err
		})
	}
	require.NoError(t, group.Wait())
	for range 20 {
		insertForeignIntent(f, "metadata[order_id]", uuid.NewString())
	}
	age(f)
	f.Transport.Reset()

	report, err := compare(f, func(c *reconcile.Options) {
		c.Since, c.Fix = 2*time.Hour, true
	})
	require.NoError(t, err)
	require.Empty(t, report.Discrepancies)
	require.Equal(t, []int{110, 20}, []int{report.Intents, report.ForeignIntents})
	f.Do(ExpectCalls("list 200 ×3, disputes 200"))
}

// An intent whose run may be active is listed, but not compared.
func TestRun_young(t *testing.T) {
	t.Parallel()
	require.Zero(t, runReconcile(newLateFixture(t, 0, paid), true).Intents)
}

// Intents of another database are counted, not reported.
func TestRun_unknownAccount(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t)
	other := uuid.NewString()
	f.InsertIntent("metadata[account_id]", other)
	insertRefund(f, "payment_intent", insertCharge(f, "metadata[account_id]", other))
	age(f)
	report := runReconcile(f, true)
	require.Empty(t, report.Discrepancies)
	require.Equal(t, []int{0, 2, 1}, []int{report.Intents, report.ForeignIntents, report.Refunds})

	report, err := compare(f, func(c *reconcile.Options) { c.LostRows, c.Fix = true, true })
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
			f := newLateFixture(t, time.Hour+test.lag, paid)
			age(f)
			f.Exec("UPDATE orders SET created_at = created_at + $1::interval", test.younger)
			f.Transport.Reset()
			report, err := compare(f, func(c *reconcile.Options) { c.Since, c.Fix = since, true })
			require.NoError(t, err)
			require.Empty(t, report.Discrepancies)
			require.Equal(t, test.intents, report.Intents)
			require.Equal(t, test.gets, f.Transport.Count("get"))
		})
	}
}

func TestRun_incomplete(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setup Step
		err   string
	}{
		"the second page of intents fails": {
			setup: func(f *Fixture) {
				for range 100 {
					insertForeignIntent(f)
				}
				Fault(stripetest.NextPageError, ListIntents)(f)
			},
			err: "list the provider's intents: payments: unknown, status 500",
		},
		"an intent cannot be read": {setup: Fault(stripetest.Unavailable, GetIntent), err: "get pi_UNKNOWN: payments: unknown, status 503"},
		"a proxy responds with a 404": {
			setup: Respond(GetIntent, http.StatusNotFound, `"type":"invalid_request_error"`),
			err:   "get pi_UNKNOWN: payments: not_executed, status 404",
		},
		"the database is down": {setup: func(f *Fixture) { f.Pool.Close() }, err: "the database is unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newOldFixture(t, paid, intent(), sql("UPDATE orders SET payment_intent_id = 'pi_UNKNOWN'"), age)
			test.setup(f)
			f.Transport.Reset()
			report, err := compare(f, func(c *reconcile.Options) { c.Since, c.Fix = 2*time.Hour, true })
			require.ErrorContains(t, err, test.err)
			require.Zero(t, report)
			require.Zero(t, f.Transport.Count("cancel"))
		})
	}
}

func TestRun_fixFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setup     Step
		fixError  string
		cancelled bool
	}{
		"a stored 500 without an effect": {
			setup:    Fault(stripetest.ErrorBefore, Cancel),
			fixError: "payments: unknown, status 500, type api_error, request ID",
		},
		"a stored 500 after the effect": {setup: Fault(stripetest.ErrorAfter, Cancel), cancelled: true},
		"the intent cannot be read": {
			setup:    Fault(stripetest.Unavailable, GetIntent),
			fixError: "get ID: payments: unknown, status 503: unreadable response",
		},
		"the client of the lost order retries": {
			setup:    After(ListRefunds, paid),
			fixError: "it has changed since it was listed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newOldFixture(t, StopBefore(Confirm), LoseRows, age)
			test.setup(f)
			report := runReconcile(f, true)
			require.Len(t, report.Discrepancies, 1)
			require.Equal(t, reconcile.OrphanedIntent, report.Discrepancies[0].Kind)
			require.Equal(t, test.fixError, anyID.ReplaceAllString(report.Discrepancies[0].FixError, "ID"))
			require.Equal(t, test.cancelled, report.Open() == 0)
			require.Empty(t, f.Stripe.OrdersChargedTwice())
		})
	}
}

const week = 7 * 24 * time.Hour

// newVeryOldFixture returns a fixture of a week ago, which only the first comparison lists.
func newVeryOldFixture(t *testing.T, steps ...Step) (f *Fixture, first reconcile.Report) {
	t.Helper()
	f = newLateFixture(t, week, steps...)
	ageBy(f, week)
	first, err := compare(f, func(c *reconcile.Options) { c.Since = 2 * week })
	require.NoError(t, err)
	return f, first
}

func acknowledge(f *Fixture, d reconcile.Discrepancy) {
	f.T.Helper()
	done, err := jobs.DeleteFailed(f.T.Context(), f.Pool, d.ID, audit.Operator{Actor: "grace", Reason: "refunded by hand"})
	require.NoError(f.T, err)
	require.EqualValues(f.T, 1, done)
}

// A discrepancy stays open after its time is outside of the comparison, until an operator acknowledges it.
func TestRun_staysFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setup []Step
		want  string
	}{
		"a charge of a lost order": {[]Step{paid, LoseRows}, "unrecorded_charge: intent succeeded, order missing"},
		"a record without an object": {
			[]Step{paid, sql("UPDATE orders SET payment_intent_id = 'pi_UNKNOWN'"), func(f *Fixture) { f.WithNewKey(f.T).Do(paid) }},
			"missing_at_provider: intent missing, order paid, response 201",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireStaysFound(t, test.want, "", test.setup...)
		})
	}
}

// The remedy of an order that records an intent which does not exist, although it has a charge.
func TestRun_recordedAgain(t *testing.T) {
	t.Parallel()
	requireStaysFound(t, "missing_at_provider: intent missing, order paid, response 201",
		"UPDATE orders SET payment_intent_id = substr(payment_intent_id, 2) WHERE payment_intent_id LIKE 'x%'",
		paid, sql("UPDATE orders SET payment_intent_id = 'x' || payment_intent_id"), func(f *Fixture) { f.WithNewKey(f.T).Do(paid) })
}

// requireStaysFound requires that a discrepancy stays open until a statement remedies it or, if there is none, an
// operator acknowledges it.
func requireStaysFound(t *testing.T, want, remedy string, setup ...Step) {
	t.Helper()
	f, first := newVeryOldFixture(t, setup...)
	require.Contains(t, inWords(first), want)
	for _, fix := range []bool{true, false} {
		next := runReconcile(f, fix)
		require.Equal(t, inWords(first), inWords(next))
		for i, d := range next.Discrepancies {
			require.Equal(t, first.Discrepancies[i].ID, d.ID)
			require.Equal(t, first.Discrepancies[i].FoundAt, d.FoundAt)
		}
		require.Equal(t, len(first.Discrepancies), next.Open())
	}
	if remedy != "" {
		f.Exec(remedy)
		require.Empty(t, runReconcile(f, true).Discrepancies)
		return
	}
	for _, d := range first.Discrepancies {
		acknowledge(f, d)
	}
	require.Empty(t, discrepancies(f))
	again, err := compare(f, func(c *reconcile.Options) { c.Since = 2 * week })
	require.NoError(t, err)
	require.Empty(t, again.Discrepancies, "what is found again is not listed")
}

func TestRun_resolvedByItself(t *testing.T) {
	t.Parallel()
	f, first := newVeryOldFixture(t, paid, sql("UPDATE orders SET amount = 4200"))
	require.Len(t, first.Discrepancies, 1)
	f.Exec("UPDATE orders SET amount = 4300")
	f.Exec("UPDATE idempotency_keys SET updated_at = now()")
	require.Len(t, discrepancies(f), 1, "a run may be active")
	f.Exec("UPDATE idempotency_keys SET updated_at = created_at")
	require.Empty(t, discrepancies(f))
}

// A job waits for a customer's approval as long as the charge window lasts. Nothing is charged before, so that is no
// difference.
func TestRun_jobWaitsForApproval(t *testing.T) {
	t.Parallel()
	f := newLateFixture(t, 0, Challenge)
	batch := &pgx.Batch{}
	orders.StageChange(batch, f.Account, OrderID(f.Account, f.Key))
	require.NoError(t, f.Pool.SendBatch(t.Context(), batch).Close())
	require.Empty(t, discrepancies(f))
	require.NotEmpty(t, staged(f))
}

// An intent or a refund that this program cannot read, because a later form of Stripe's API has another type of
// status, is reported, and hides no other one.
func TestRun_unreadableObjects(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paid, charge(), sql("UPDATE orders SET amount = amount + 1"))
	intent, refund := *f.GetOrder().PaymentIntentID, insertRefund(f)
	age(f)
	const mismatch = "amount_mismatch: intent succeeded, order paid, response 201"
	require.Contains(t, discrepancies(f), mismatch)

	// Also of another program, and one whose intent is unreadable.
	unreadable := map[string]bool{intent: true, insertForeignIntent(f): true, refund: true}
	f.Do(EditResponses(func(text []byte) []byte {
		var body map[string]any
		require.NoError(t, json.Unmarshal(text, &body))
		listed, _ := body["data"].([]any)
		for _, object := range append(listed, body) {
			object := object.(map[string]any)
			if id, _ := object["id"].(string); unreadable[id] {
				object["status"] = map[string]any{"state": object["status"]}
			}
		}
		text, err := json.Marshal(body)
		require.NoError(t, err)
		return text
	}, ListIntents, GetIntent, ListRefunds))
	for range 2 {
		report := runReconcile(f, true)
		words, named := inWords(report), map[string]bool{}
		require.Contains(t, words, "duplicate_charge: intent succeeded, order partially_refunded, response 201", "of the same page")
		require.Contains(t, words, mismatch, "an earlier finding stays until the intent can be read")
		for _, d := range report.Discrepancies {
			if d.Kind != "object_unreadable" {
				continue
			}
			var data map[string]string
			require.NoError(t, json.Unmarshal(d.Data, &data))
			named[data["object_id"]] = true
		}
		require.Equal(t, unreadable, named)
		require.NotZero(t, report.Open())
	}
	require.Zero(t, f.Transport.Count("cancel"))
}
