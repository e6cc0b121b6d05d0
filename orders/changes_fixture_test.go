package orders_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

const refundFail = "pm_card_refundFail" // its refunds fail later

func createPaid(paymentMethod string) step {
	return func(f *fixture) {
		f.t.Helper()
		f.do(payWith(paymentMethod), create("201"))
		f.transport.reset()
	}
}

// readEvents is a pass of the worker. Jobs that wait for their next attempt are due.
func readEvents(f *fixture) {
	f.t.Helper()
	f.exec("UPDATE staged_jobs SET run_at = now() WHERE kind = 'provider_change' AND failed_at IS NULL")
	require.NoError(f.t, f.Changes.ReadList(f.t.Context()))
	workOff(f)
}

func workOff(f *fixture) {
	f.t.Helper()
	_, err := f.Changes.Worker().RunOnce(f.t.Context())
	require.NoError(f.t, err)
}

func (f *fixture) events() (events []stripetest.Event) {
	f.Stripe.EditEvents(func(e *stripetest.Event) { events = append(events, *e) })
	return events
}

// deliverChange delivers a webhook, and lets the worker do the rest.
func (f *fixture) deliverChange(e stripetest.Event) {
	f.t.Helper()
	_, err := f.deliver(e.Sign(orderstest.WebhookSecret, time.Now()))
	require.NoError(f.t, err)
	workOff(f)
}

func deliverEvents(f *fixture) {
	f.t.Helper()
	for _, e := range f.events() {
		f.deliverChange(e)
	}
}

// changes describes our records of the order: partially_refunded 1800: succeeded 1800 provider; lost 700.
func (f *fixture) changes() string {
	f.t.Helper()
	var state string
	require.NoError(f.t, f.Pool.QueryRow(f.t.Context(), `
SELECT o.status || ' ' || o.amount_refunded || ': '
       || coalesce((SELECT string_agg(r.status || ' ' || r.amount || ' ' || r.source, ', ' ORDER BY r.amount, r.source)
                      FROM refunds r WHERE r.account_id = o.account_id AND r.order_id = o.id), '')
       || coalesce((SELECT '; ' || string_agg(d->>'status' || ' ' || (d->>'amount'), ', ' ORDER BY (d->>'amount')::int)
                      FROM jsonb_array_elements(o.disputes) AS d), '')
  FROM orders o
 WHERE o.id = $1`, orderID(f.Account, f.key)).Scan(&state))
	return state
}

// checkChanges compares our records with the fake's ledger.
func checkChanges(t *testing.T, f *fixture) {
	t.Helper()
	var recorded, listed []string
	for _, query := range []string{`
SELECT o.payment_intent_id || ' ' || r.provider_refund_id || ' ' || r.status || ' ' || r.amount || ' ' || r.currency
  FROM refunds r
  JOIN orders o ON o.account_id = r.account_id AND o.id = r.order_id
 WHERE r.provider_refund_id IS NOT NULL`, `
SELECT o.payment_intent_id || ' ' || (d->>'id') || ' ' || (d->>'status') || ' ' || (d->>'amount') || ' ' || (d->>'currency')
  FROM orders o, jsonb_array_elements(o.disputes) AS d`} {
		rows, err := f.Pool.Query(t.Context(), query)
		require.NoError(t, err)
		recorded = append(recorded, collectStrings(t, rows)...)
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
		require.Equal(t, 1, f.count(`
SELECT count(*)
  FROM orders
 WHERE payment_intent_id = $1
   AND amount_refunded = $2
   AND status = CASE WHEN $2 = 0 THEN 'paid' WHEN $2 = amount THEN 'refunded' ELSE 'partially_refunded' END`,
			charge.IntentID, charge.Refunded), "of %s, %d was refunded", charge.IntentID, charge.Refunded)
	}
	require.Zero(t, f.count(`
SELECT count(*)
  FROM (SELECT resource_id FROM audit_records WHERE action LIKE 'refund.%' AND action <> 'refund.created'
         GROUP BY resource_id, action, data HAVING count(*) > 1) AS twice`), "each change is recorded once")
	require.Empty(t, f.transport.violations())
	checkProviderKeys(t, f.Stripe.Requests())
}

func (f *fixture) findings() []string {
	f.t.Helper()
	rows, err := f.Pool.Query(f.t.Context(), "SELECT last_error FROM staged_jobs WHERE kind = 'discrepancy' AND acknowledged_at IS NULL ORDER BY 1")
	require.NoError(f.t, err)
	return collectStrings(f.t, rows)
}

func (f *fixture) shopEvents() []string {
	f.t.Helper()
	rows, err := f.Pool.Query(f.t.Context(), "SELECT args->>'type' FROM staged_jobs WHERE kind = 'event' ORDER BY 1")
	require.NoError(f.t, err)
	return collectStrings(f.t, rows)
}

func (f *fixture) staged() string {
	f.t.Helper()
	rows, err := f.Pool.Query(f.t.Context(), `
SELECT CASE WHEN failed_at IS NULL THEN 'pending: ' ELSE 'failed: ' END || coalesce(last_error, '')
  FROM staged_jobs
 WHERE kind = 'provider_change'
 ORDER BY created_at`)
	require.NoError(f.t, err)
	return strings.Join(collectStrings(f.t, rows), "; ")
}

func refundAtDashboard(amount int64, reason string) step {
	return func(f *fixture) {
		f.t.Helper()
		_, err := f.Stripe.RefundAtDashboard(f.intentID(), amount, reason)
		require.NoError(f.t, err)
	}
}

// dispute disputes an amount, with these statuses one after the other.
func dispute(amount int64, statuses ...string) step {
	return func(f *fixture) {
		f.t.Helper()
		id, err := f.Stripe.Dispute(f.intentID(), amount, "fraudulent", statuses[0])
		require.NoError(f.t, err)
		for _, status := range statuses[1:] {
			require.NoError(f.t, f.Stripe.UpdateDispute(id, status))
		}
	}
}

func (f *fixture) latestRefund() stripetest.Refund {
	f.t.Helper()
	intent := f.intentID()
	all := f.Stripe.Refunds()
	i := len(all) - 1
	for all[i].IntentID != intent {
		i--
	}
	return all[i]
}

func failRefund(f *fixture) {
	f.t.Helper()
	require.NoError(f.t, f.Stripe.Settle(f.latestRefund().ID, false))
}
