package orders_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/payments/stripetest"
)

// Changes of refunds that our API has made.
func init() {
	maps.Copy(providerChanges, map[string]providerChange{
		"a refund fails late": {
			[]step{createPaid(refundFail), refund("201")}, []step{failRefund}, "paid 0: failed 1800 api", true,
		},
		"a pending refund fails": {
			[]step{createPaid(pendingRefund), refund("201")}, []step{failRefund}, "paid 0: failed 1800 api", true,
		},
		"the rest is refunded at the dashboard": {
			[]step{createPaid(visa), refund("201")},
			[]step{refundAtDashboard(0, "expired_uncaptured_charge")},
			"refunded 4300: succeeded 1800 api, succeeded 2500 provider", false,
		},
		"staff edits the metadata": {
			[]step{createPaid(visa), refund("201")},
			[]step{editRefund(func(r *stripetest.Refund) { clear(r.Metadata) })},
			"partially_refunded 1800: succeeded 1800 api", false,
		},
		"a status that we do not know": {
			[]step{createPaid(visa), refund("201")},
			[]step{editRefund(func(r *stripetest.Refund) { r.Status = "reversed" })},
			"partially_refunded 1800: pending 1800 api", false,
		},
		"a dispute of a part is lost": {
			[]step{createPaid(visa), refund("201")},
			[]step{dispute(700, "needs_response", "under_review", "lost")},
			"partially_refunded 1800: succeeded 1800 api; lost 700", false,
		},
	})
}

// A list that was requested before a change changes nothing after a later list is recorded.
func TestChanges_laterReadWins(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{concurrent: true, connections: 2}, createPaid(pendingRefund), refund("201"))
	f.do(after(listDisputes, func(f *fixture) {
		failRefund(f)
		dispute(700, "lost")(f)
		require.NoError(t, f.Changes.Sync(t.Context(), f.Account, orderID(f.Account, f.key)))
	}))
	require.Error(t, f.Changes.Sync(t.Context(), f.Account, orderID(f.Account, f.key)), "so that a job is repeated")
	require.Equal(t, "paid 0: failed 1800 api; lost 700", f.changes())
	checkChanges(t, f)

	f.exec("UPDATE orders SET provider_read_at = now() + interval '1 day'") // recorded while the clock ran ahead
	f.do(dispute(100, "won"), readEvents)
	require.Equal(t, "paid 0: failed 1800 api; won 100, lost 700", f.changes())
}

// An event arrives before the provider's response, which is older and does not revert it.
func TestChanges_duringRefund(t *testing.T) {
	t.Parallel()
	for name, success := range map[string]bool{"succeeded": true, "failed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{concurrent: true}, createPaid(pendingRefund))
			held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: makeRefund})
			done := make(chan string, 1)
			req := refundRequest(t, f.Account, orderID(f.Account, f.key), oneRefund, `{}`)
			go func() { done <- outcomeOf(f.Refund(t.Context(), req)) }()
			<-held.Reached()
			require.NoError(t, f.Stripe.Settle(f.Stripe.Refunds()[0].ID, success))
			f.do(deliverEvents)
			require.EqualValues(t, name, f.getRefund(oneRefund).Status)
			held.Release()
			require.Equal(t, "201", <-done, "with status pending: the response is older than the event")
			require.EqualValues(t, name, f.getRefund(oneRefund).Status)
			checkRefundInvariants(t, f)
			checkChanges(t, f)
		})
	}
}

// The row of a refund is lost. It is recorded under its own id, so its key is never used again (R17).
func TestChanges_lostRefundRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), refund("201"), readEvents)
	f.exec("DELETE FROM refunds")
	f.exec("DELETE FROM audit_records WHERE action LIKE 'refund.%'")
	f.exec("DELETE FROM idempotency_keys WHERE operation = 'create_refund'")
	f.exec("UPDATE orders SET amount_refunded = 0, status = 'paid'")
	f.do(dispute(700, "won"), readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 api; won 700", f.changes())
	require.Equal(t, "422 key expired", outcomeOf(f.refund(f.refundKey(), oneBody)))
	require.Len(t, f.Stripe.Refunds(), 1)
	checkChanges(t, f)
}

// The refund of the whole order is not refused because of itself.
func TestChanges_lostFullRefundRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa))
	const key = "a-refund-of-all-of-it"
	require.Equal(t, "201", outcomeOf(f.refund(key, `{}`)))
	f.exec("DELETE FROM refunds")
	f.exec("DELETE FROM audit_records WHERE action LIKE 'refund.%'")
	f.exec("DELETE FROM idempotency_keys WHERE operation = 'create_refund'")
	f.exec("UPDATE orders SET amount_refunded = 0, status = 'paid'")
	f.do(readEvents)
	require.Equal(t, "422 key expired", outcomeOf(f.refund(key, `{}`)))
	require.Len(t, f.Stripe.Refunds(), 1)
	checkChanges(t, f)
}

// A refund of the dashboard may be ours, whose response was lost and whose metadata was removed. It waits
// until ours is decided.
func TestChanges_ambiguousDashboardRefund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), loseRequest(makeRefund), refund("503 outcome unknown, 1s"))
	f.do(refundAtDashboard(1800, ""), refundAtDashboard(500, ""), readEvents)
	require.Equal(t, "partially_refunded 500: succeeded 500 provider, pending 1800 api", f.changes())
	require.Regexp(t, "^pending: re_.* may be our refund that is in progress$", f.staged())

	f.do(retry("201"), readEvents)
	require.Equal(t, "partially_refunded 4100: succeeded 500 provider, succeeded 1800 api, succeeded 1800 provider", f.changes())
	require.Empty(t, f.staged())
	checkChanges(t, f)
}

// Our refund is at the provider twice under the same id: the one that is not void is ours.
func TestChanges_sameRefundTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(refundFail), refund("201"), failRefund)
	f.exec("DELETE FROM refunds")
	f.do(refundAtProvider("amount", "1800", "metadata[account_id]", f.Account.String(), "metadata[order_id]", orderID(f.Account, f.key).String(),
		"metadata[refund_id]", refundID(f.Account, f.refundKey()).String()), readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 api, failed 1800 provider", f.changes())
	require.EqualValues(t, "succeeded", f.getRefund(f.refundKey()).Status)
	checkChanges(t, f)
}

// makeRefundAfterFailure lets the provider execute a refund after an operator has closed it.
func makeRefundAfterFailure(f *fixture) {
	f.t.Helper()
	later := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.ErrorLater, Endpoint: makeRefund})
	f.do(refund("503 outcome unknown, 1h0m0s"))
	f.ageLastRun(time.Hour)
	f.expireProviderKeys()
	require.Equal(f.t, "422 closed_by_operator", outcomeOf(f.resolveKey(f.refundKey())))
	later.Release()
}

func TestChanges_refundMadeAfterFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), makeRefundAfterFailure)
	require.Zero(t, f.log.errorLines())
	f.do(readEvents, expectSummary(refunded), retry("422 closed_by_operator"))
	require.Equal(t, 1, f.log.errorLines())
	require.Equal(t, []string{"refund_made_after_failure"}, f.findings())
	checkChanges(t, f)
}

// Staff remove the metadata of a refund, so it counts as one of the dashboard, and put it back.
func TestChanges_metadataIsBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), makeRefundAfterFailure)
	ours := maps.Clone(f.latestRefund().Metadata)
	f.do(editRefund(func(r *stripetest.Refund) { clear(r.Metadata) }), readEvents)
	f.do(editRefund(func(r *stripetest.Refund) { r.Metadata = ours }), readEvents)
	require.Empty(t, f.staged())
	require.Equal(t, "partially_refunded 1800: failed 1800 api, succeeded 1800 provider", f.changes())
	checkChanges(t, f)
}

// The record of a reaped key's refund changes, too.
func TestChanges_reapedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(pendingRefund), refund("201"))
	require.Equal(t, 2, idempotencytest.Reap(t, f.Pool))
	f.do(failRefund, deliverEvents)
	require.Equal(t, "paid 0: failed 1800 api", f.changes())
	require.Equal(t, "201", outcomeOf(f.refund("another-refund-of-it", `{"amount":300}`)), "the amount is released")
	checkChanges(t, f)
}

func editRefund(edit func(*stripetest.Refund)) step {
	return func(f *fixture) {
		f.t.Helper()
		require.NoError(f.t, f.Stripe.EditRefund(f.latestRefund().ID, edit))
	}
}
