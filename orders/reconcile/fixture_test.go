package reconcile_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/migrations/dbtest"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

const refundFail = "pm_card_refundFail" // its refunds fail later

// readEvents is a pass of the worker. Jobs that wait for their next attempt are due.
func readEvents(f *Fixture) {
	f.T.Helper()
	f.Exec("UPDATE staged_jobs SET run_at = now() WHERE kind = 'provider_change' AND failed_at IS NULL")
	require.NoError(f.T, f.Changes.ReadList(f.T.Context()))
	workOff(f)
}

func workOff(f *Fixture) {
	f.T.Helper()
	_, err := f.Changes.Worker().RunOnce(f.T.Context())
	require.NoError(f.T, err)
}

func syncOrder(f *Fixture) error {
	f.T.Helper()
	return f.Changes.Sync(f.T.Context(), f.Account, OrderID(f.Account, f.Key))
}

func events(f *Fixture) (events []stripetest.Event) {
	f.Stripe.EditEvents(func(e *stripetest.Event) { events = append(events, *e) })
	return events
}

// deliverChange delivers a webhook, and lets the worker do the rest.
func deliverChange(f *Fixture, e stripetest.Event) {
	f.T.Helper()
	payload, signature := e.Sign(WebhookSecret, time.Now())
	_, err := deliver(f, payload, signature)
	require.NoError(f.T, err)
	workOff(f)
}

func deliverEvents(f *Fixture) {
	f.T.Helper()
	for _, e := range events(f) {
		deliverChange(f, e)
	}
}

// changes describes our records of the order: partially_refunded 1800: succeeded 1800 provider; lost 700.
func changes(f *Fixture) string {
	f.T.Helper()
	var state string
	require.NoError(f.T, f.Pool.QueryRow(f.T.Context(), `
SELECT o.status || ' ' || o.amount_refunded || ': '
       || coalesce((SELECT string_agg(r.status || ' ' || r.amount || ' ' || r.source, ', ' ORDER BY r.amount, r.source)
                      FROM refunds r WHERE r.account_id = o.account_id AND r.order_id = o.id), '')
       || coalesce((SELECT '; ' || string_agg(d->>'status' || ' ' || (d->>'amount'), ', ' ORDER BY (d->>'amount')::int)
                      FROM jsonb_array_elements(o.disputes) AS d), '')
  FROM orders o
 WHERE o.id = $1`, OrderID(f.Account, f.Key)).Scan(&state))
	return state
}

// checkChanges compares our records with the fake's ledger.
func checkChanges(t *testing.T, f *Fixture) {
	t.Helper()
	var recorded, listed []string
	for _, query := range []string{`
SELECT o.payment_intent_id || ' ' || r.provider_refund_id || ' ' || r.status || ' ' || r.amount || ' ' || r.currency
  FROM refunds r
  JOIN orders o ON o.account_id = r.account_id AND o.id = r.order_id
 WHERE r.provider_refund_id IS NOT NULL`, `
SELECT o.payment_intent_id || ' ' || (d->>'id') || ' ' || (d->>'status') || ' ' || (d->>'amount') || ' ' || (d->>'currency')
  FROM orders o, jsonb_array_elements(o.disputes) AS d`} {
		recorded = append(recorded, f.Texts(query)...)
	}
	for _, r := range f.Stripe.Refunds() {
		status := r.Status
		if status == "reversed" {
			status = "pending"
		}
		listed = append(listed, fmt.Sprint(r.IntentID, " ", r.ID, " ", status, " ", r.Amount, " ", r.Currency))
	}
	for _, d := range f.Stripe.Disputes() {
		listed = append(listed, fmt.Sprint(d.IntentID, " ", d.ID, " ", d.Status, " ", d.Amount, " ", d.Currency))
	}
	slices.Sort(recorded)
	slices.Sort(listed)
	require.Equal(t, listed, recorded)
	for _, charge := range f.Stripe.Charges() {
		require.Equal(t, 1, f.Count(`
SELECT count(*)
  FROM orders
 WHERE payment_intent_id = $1
   AND amount_refunded = $2
   AND status = CASE WHEN $2 = 0 THEN 'paid' WHEN $2 = amount THEN 'refunded' ELSE 'partially_refunded' END`,
			charge.IntentID, charge.Refunded), "of %s, %d was refunded", charge.IntentID, charge.Refunded)
	}
	require.Zero(t, f.Count(`
SELECT count(*)
  FROM (SELECT resource_id FROM audit_records WHERE action LIKE 'refund.%' AND action <> 'refund.created'
         GROUP BY resource_id, action, data HAVING count(*) > 1) AS twice`), "each change is recorded once")
	require.Empty(t, f.Transport.Violations())
	CheckProviderKeys(t, f.Stripe.Requests())
}

func findings(f *Fixture) []string {
	f.T.Helper()
	return f.Texts("SELECT last_error FROM staged_jobs WHERE kind = 'discrepancy' AND acknowledged_at IS NULL ORDER BY 1")
}

func shopEvents(f *Fixture) []string {
	f.T.Helper()
	return f.Texts("SELECT args->>'type' FROM staged_jobs WHERE kind = 'event' ORDER BY 1")
}

func staged(f *Fixture) string {
	f.T.Helper()
	return strings.Join(f.Texts(`
SELECT CASE WHEN failed_at IS NULL THEN 'pending: ' ELSE 'failed: ' END || coalesce(last_error, '')
  FROM staged_jobs
 WHERE kind = 'provider_change'
 ORDER BY created_at`), "; ")
}

func refundAtDashboard(amount int64, reason string) Step {
	return func(f *Fixture) {
		f.T.Helper()
		_, err := f.Stripe.RefundAtDashboard(f.IntentID(), amount, reason)
		require.NoError(f.T, err)
	}
}

// dispute disputes an amount, with these statuses one after the other.
func dispute(amount int64, statuses ...string) Step {
	return func(f *Fixture) {
		f.T.Helper()
		id, err := f.Stripe.Dispute(f.IntentID(), amount, "fraudulent", statuses[0])
		require.NoError(f.T, err)
		for _, status := range statuses[1:] {
			require.NoError(f.T, f.Stripe.UpdateDispute(id, status))
		}
	}
}

func latestRefund(f *Fixture) stripetest.Refund {
	f.T.Helper()
	intent := f.IntentID()
	all := f.Stripe.Refunds()
	i := len(all) - 1
	for all[i].IntentID != intent {
		i--
	}
	return all[i]
}

func failRefund(f *Fixture) {
	f.T.Helper()
	require.NoError(f.T, f.Stripe.Settle(latestRefund(f).ID, false))
}

// newLateFixture returns a fixture whose provider's clock is late by lag, until ageBy.
func newLateFixture(t *testing.T, lag time.Duration, steps ...Step) *Fixture {
	t.Helper()
	return NewFixture(t, Setup{Jobs: true, Clock: func() time.Time { return time.Now().Add(-lag) }}, steps...)
}

// newOldFixture returns a fixture whose provider's clock is an hour late, until age.
func newOldFixture(t *testing.T, steps ...Step) *Fixture {
	t.Helper()
	return newLateFixture(t, time.Hour, steps...)
}

func age(f *Fixture) { ageBy(f, time.Hour) }

func ageBy(f *Fixture, age time.Duration) {
	f.T.Helper()
	f.Stripe.Advance(age)
	f.Exec(`
UPDATE idempotency_keys
   SET created_at  = created_at - $1::interval,
       updated_at = updated_at - $1::interval,
       locked_at   = locked_at - $1::interval,
       finished_at = finished_at - $1::interval`, age)
	f.Exec("UPDATE orders SET created_at = created_at - $1::interval, paid_at = paid_at - $1::interval", age)
	f.Exec("UPDATE refunds SET created_at = created_at - $1::interval", age)
}

func sql(statements ...string) Step {
	return func(f *Fixture) {
		for _, statement := range statements {
			f.Exec(statement)
		}
	}
}

func insertCharge(f *Fixture, changes ...string) string {
	f.T.Helper()
	return f.InsertIntent(append([]string{"confirm", "true", "off_session", "true"}, changes...)...)
}

func insertForeignIntent(f *Fixture, changes ...string) string {
	f.T.Helper()
	return f.OutOfBand("/v1/payment_intents", append([]string{"amount", "500", "currency", "usd"}, changes...)...).ID
}

func insertRefund(f *Fixture, changes ...string) string {
	f.T.Helper()
	return f.OutOfBand("/v1/refunds", append([]string{"payment_intent", f.Stripe.Charges()[0].IntentID, "amount", "7"}, changes...)...).ID
}

func compare(f *Fixture, change func(*reconcile.Options)) (reconcile.Report, error) {
	f.T.Helper()
	return f.Changes.Compare(f.T.Context(), options(change))
}

func options(change func(*reconcile.Options)) reconcile.Options {
	options := reconcile.Options{Since: 48 * time.Hour, Grace: Grace}
	change(&options)
	return options
}

func runReconcile(f *Fixture, fix bool) reconcile.Report {
	f.T.Helper()
	report, err := compare(f, func(c *reconcile.Options) { c.Fix = fix })
	require.NoError(f.T, err)
	require.NotNil(f.T, report.Discrepancies)
	require.Empty(f.T, f.Transport.Violations())
	return report
}

func discrepancies(f *Fixture) []string {
	f.T.Helper()
	return inWords(runReconcile(f, false))
}

var (
	anyID   = regexp.MustCompile(`(pi|req|re)_[A-Z0-9]+|[0-9a-f]{8}-[0-9a-f-]{27}`)
	anyTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
)

func inWords(report reconcile.Report) []string {
	var list []string
	for _, d := range report.Discrepancies {
		text := string(d.Kind) + ": " + d.Detail
		switch {
		case d.Fixed:
			text += " => fixed"
		case d.FixError != "":
			text += " => not fixed: " + d.FixError
		}
		list = append(list, anyTime.ReplaceAllString(anyID.ReplaceAllString(text, "ID"), "TIME"))
	}
	return list
}
