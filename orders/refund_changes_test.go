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

// An event overtakes the provider's response. Our run records its refund first, so a failure is one after a
// success, of which the client and an operator are told.
func TestChanges_duringRefund(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card     string
		success  bool
		findings []string
	}{
		"pending, then succeeded": {pendingRefund, true, []string{}},
		"pending, then failed":    {pendingRefund, false, []string{"refund_failed_late"}},
		"succeeded, then failed":  {refundFail, false, []string{"refund_failed_late"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{concurrent: true, connections: 3}, setEndpoint, createPaid(test.card))
			held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: makeRefund})
			done := make(chan string, 1)
			req := refundRequest(t, f.Account, orderID(f.Account, f.key), oneRefund, `{}`)
			go func() { done <- outcomeOf(f.Refund(t.Context(), req)) }()
			<-held.Reached()
			require.NoError(t, f.Stripe.Settle(f.Stripe.Refunds()[0].ID, test.success))
			f.do(deliverEvents)
			require.EqualValues(t, "pending", f.getRefund(oneRefund).Status)
			held.Release()
			require.Equal(t, "201", <-done, "the response is older than the event")
			f.do(readEvents)
			require.Equal(t, test.success, f.getRefund(oneRefund).Status == "succeeded")
			require.Equal(t, test.findings, f.findings())
			require.Equal(t, []string{"order.paid", "refund.created", "refund.updated"}, f.shopEvents())
			require.Empty(t, f.staged())
			checkRefundInvariants(t, f)
			checkChanges(t, f)
		})
	}
}

// A read that began before our run's own changes nothing that this run has recorded.
func TestChanges_ownRunReadsLater(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{concurrent: true, connections: 2}, setEndpoint, createPaid(pendingRefund))
	f.do(loseResponse(makeRefund), secondListUnavailable, refund("503 outcome unknown, 2s"))
	f.do(after(listRefunds, func(f *fixture) {
		require.NoError(t, f.Stripe.Settle(f.latestRefund().ID, true))
		f.do(retry("201"))
	}), readEvents, readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 api", f.changes())
	require.Equal(t, []string{"order.paid", "refund.created"}, f.shopEvents(), "it is reported once")
	checkChanges(t, f)
}

// The process that made the refund has died. The job lets the refund's own run record it.
func TestChanges_refundOfDeadRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(refundFail))
	f.do(loseResponse(makeRefund), secondListUnavailable, refund("503 outcome unknown, 2s"), readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 api", f.changes())
	f.do(retry("201"), failRefund, readEvents)
	require.Equal(t, "paid 0: failed 1800 api", f.changes())
	require.Equal(t, []string{"refund_failed_late"}, f.findings())
	require.Empty(t, f.staged())
	checkChanges(t, f)
}

// The client has a 201, whose rows are lost. So its failure is one after a success.
func TestChanges_lostRefundFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(refundFail), refund("201"), loseRefunds, failRefund, readEvents)
	require.Equal(t, "paid 0: failed 1800 api", f.changes())
	require.Equal(t, []string{"refund_failed_late"}, f.findings())
	checkChanges(t, f)
}

// A key whose rows are lost is used again, with another amount. The refund that its first use has made is
// not the answer, and an operator is told.
func TestChanges_otherAmount(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa))
	require.Equal(t, "201", outcomeOf(f.refund(f.refundKey(), `{"amount":500}`)))
	loseRefunds(f)
	f.do(makeUnavailable(listRefunds), refund("503 unavailable, 2s"), readEvents, readEvents)
	require.Equal(t, []string{"refund_differs"}, f.findings())
	require.Empty(t, f.staged(), "an attempt changes nothing before an operator does")
	require.Equal(t, "paid 0: pending 1800 api", f.changes())
	f.do(retry("503 outcome unknown, 1m0s"))
}

// The amount of a recorded refund was changed. The provider's is recorded, and an operator is told.
func TestChanges_amountChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), refund("201"), readEvents)
	f.exec("UPDATE refunds SET amount = 1700")
	f.do(dispute(700, "won"), readEvents)
	require.Equal(t, []string{"refund_differs"}, f.findings())
	require.Equal(t, "partially_refunded 1800: succeeded 1800 api; won 700", f.changes())
}

// The row of a refund is lost. It is recorded under its own id, so its key is never used again (R17). The refund of
// the whole order is not refused because of itself.
func TestChanges_lostRefundRow(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		oneBody: "partially_refunded 1800: succeeded 1800 api", `{}`: "refunded 4300: succeeded 4300 api",
	} {
		f := newFixture(t, options{}, createPaid(visa))
		require.Equal(t, "201", outcomeOf(f.refund(oneRefund, body)))
		f.do(loseRefunds, readEvents)
		require.Equal(t, want, f.changes())
		require.Equal(t, "422 key expired", outcomeOf(f.refund(oneRefund, body)))
		require.Len(t, f.Stripe.Refunds(), 1)
		checkChanges(t, f)
	}
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
	require.Equal(f.t, "422 canceled", outcomeOf(f.resolveKey(f.refundKey())))
	later.Release()
}

func TestChanges_refundMadeAfterFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), makeRefundAfterFailure)
	f.do(readEvents, expectSummary(refunded), retry("422 canceled"))
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
