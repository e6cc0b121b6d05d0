package reconcile_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

// Changes of refunds that our API has made.
func init() {
	maps.Copy(providerChanges, map[string]providerChange{
		"a refund fails late": {
			[]Step{CreatePaid(refundFail), Refund("201")}, []Step{failRefund}, "paid 0: failed 1800 api", true,
		},
		"a pending refund fails": {
			[]Step{CreatePaid(PendingRefund), Refund("201")}, []Step{failRefund}, "paid 0: failed 1800 api", true,
		},
		"the rest is refunded at the dashboard": {
			[]Step{CreatePaid(Visa), Refund("201")},
			[]Step{refundAtDashboard(0, "expired_uncaptured_charge")},
			"refunded 4300: succeeded 1800 api, succeeded 2500 provider", false,
		},
		"staff edits the metadata": {
			[]Step{CreatePaid(Visa), Refund("201")},
			[]Step{editRefund(func(r *stripetest.Refund) { clear(r.Metadata) })},
			"partially_refunded 1800: succeeded 1800 api", false,
		},
		"a status that we do not know": {
			[]Step{CreatePaid(Visa), Refund("201")},
			[]Step{editRefund(func(r *stripetest.Refund) { r.Status = "reversed" })},
			"partially_refunded 1800: pending 1800 api", false,
		},
		"a dispute of a part is lost": {
			[]Step{CreatePaid(Visa), Refund("201")},
			[]Step{dispute(700, "needs_response", "under_review", "lost")},
			"partially_refunded 1800: succeeded 1800 api; lost 700", false,
		},
	})
}

// A list that was requested before a change changes nothing after a later list is recorded.
func TestChanges_laterReadWins(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Concurrent: true, Connections: 2}, CreatePaid(PendingRefund), Refund("201"))
	f.Do(After(ListDisputes, func(f *Fixture) {
		failRefund(f)
		dispute(700, "lost")(f)
		require.NoError(t, syncOrder(f))
	}))
	require.Error(t, syncOrder(f), "so that a job is repeated")
	require.Equal(t, "paid 0: failed 1800 api; lost 700", changes(f))
	checkChanges(t, f)

	f.Exec("UPDATE orders SET provider_read_at = now() + interval '1 day'") // recorded while the clock ran ahead
	f.Do(dispute(100, "won"), readEvents)
	require.Equal(t, "paid 0: failed 1800 api; won 100, lost 700", changes(f))
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
		"pending, then succeeded": {PendingRefund, true, []string{}},
		"pending, then failed":    {PendingRefund, false, []string{"refund_failed_late"}},
		"succeeded, then failed":  {refundFail, false, []string{"refund_failed_late"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{Concurrent: true, Connections: 3}, SetEndpoint, CreatePaid(test.card))
			held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: MakeRefund})
			done := make(chan string, 1)
			req := RefundRequest(t, f.Account, OrderID(f.Account, f.Key), OneRefund, `{}`)
			go func() { done <- Outcome(f.Refund(t.Context(), req)) }()
			<-held.Reached()
			require.NoError(t, f.Stripe.Settle(f.Stripe.Refunds()[0].ID, test.success))
			f.Do(deliverEvents)
			require.EqualValues(t, "pending", f.GetRefund(OneRefund).Status)
			held.Release()
			require.Equal(t, "201", <-done, "the response is older than the event")
			f.Do(readEvents)
			require.Equal(t, test.success, f.GetRefund(OneRefund).Status == "succeeded")
			require.Equal(t, test.findings, findings(f))
			require.Equal(t, []string{"order.paid", "refund.created", "refund.updated"}, shopEvents(f))
			require.Empty(t, staged(f))
			CheckRefundInvariants(t, f)
			checkChanges(t, f)
		})
	}
}

// A read that began before our run's own changes nothing that this run has recorded.
func TestChanges_ownRunReadsLater(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Concurrent: true, Connections: 2}, SetEndpoint, CreatePaid(PendingRefund))
	f.Do(LoseResponse(MakeRefund), SecondListUnavailable, Refund("503 outcome unknown, 2s"))
	f.Do(After(ListRefunds, func(f *Fixture) {
		require.NoError(t, f.Stripe.Settle(latestRefund(f).ID, true))
		f.Do(Retry("201"))
	}), readEvents, readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 api", changes(f))
	require.Equal(t, []string{"order.paid", "refund.created"}, shopEvents(f), "it is reported once")
	checkChanges(t, f)
}

// The process that made the refund has died. The job lets the refund's own run record it.
func TestChanges_refundOfDeadRun(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(refundFail))
	f.Do(LoseResponse(MakeRefund), SecondListUnavailable, Refund("503 outcome unknown, 2s"), readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 api", changes(f))
	f.Do(Retry("201"), failRefund, readEvents)
	require.Equal(t, "paid 0: failed 1800 api", changes(f))
	require.Equal(t, []string{"refund_failed_late"}, findings(f))
	require.Empty(t, staged(f))
	checkChanges(t, f)
}

// The client has a 201, whose rows are lost. So its failure is one after a success.
func TestChanges_lostRefundFails(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(refundFail), Refund("201"), LoseRefunds, failRefund, readEvents)
	require.Equal(t, "paid 0: failed 1800 api", changes(f))
	require.Equal(t, []string{"refund_failed_late"}, findings(f))
	checkChanges(t, f)
}

// A key whose rows are lost is used again, with another amount. The refund that its first use has made is
// not the answer, and an operator is told.
func TestChanges_otherAmount(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa))
	require.Equal(t, "201", Outcome(f.RefundOrder(f.RefundKey(), `{"amount":500}`)))
	LoseRefunds(f)
	f.Do(MakeUnavailable(ListRefunds), Refund("503 unavailable, 2s"), readEvents, readEvents)
	require.Equal(t, []string{"refund_differs"}, findings(f))
	require.Empty(t, staged(f), "an attempt changes nothing before an operator does")
	require.Equal(t, "paid 0: pending 1800 api", changes(f))
	f.Do(Retry("503 outcome unknown, 1m0s"), sql("UPDATE refunds SET amount = 500"), Retry("201"), readEvents)
	require.Equal(t, "partially_refunded 500: succeeded 500 api", changes(f), "as the runbook says")
}

// The amount of a recorded refund was changed. The provider's is recorded, and an operator is told.
func TestChanges_amountChanged(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa), Refund("201"), readEvents)
	f.Exec("UPDATE refunds SET amount = 1700")
	f.Do(dispute(700, "won"), readEvents)
	require.Equal(t, []string{"refund_differs"}, findings(f))
	require.Equal(t, "partially_refunded 1800: succeeded 1800 api; won 700", changes(f))
}

// The row of a refund is lost. It is recorded under its own id, so its key is never used again (R17). The refund of
// the whole order is not refused because of itself.
func TestChanges_lostRefundRow(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		OneBody: "partially_refunded 1800: succeeded 1800 api", `{}`: "refunded 4300: succeeded 4300 api",
	} {
		f := NewFixture(t, Setup{}, CreatePaid(Visa))
		require.Equal(t, "201", Outcome(f.RefundOrder(OneRefund, body)))
		f.Do(LoseRefunds, readEvents)
		require.Equal(t, want, changes(f))
		require.Equal(t, "422 key expired", Outcome(f.RefundOrder(OneRefund, body)))
		require.Len(t, f.Stripe.Refunds(), 1)
		checkChanges(t, f)
	}
}

// A refund of the dashboard may be ours, whose response was lost and whose metadata was removed. It waits
// until ours is decided.
func TestChanges_ambiguousDashboardRefund(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa), LoseRequest(MakeRefund), Refund("503 outcome unknown, 1s"))
	f.Do(refundAtDashboard(1800, ""), refundAtDashboard(500, ""), readEvents)
	require.Equal(t, "partially_refunded 500: succeeded 500 provider, pending 1800 api", changes(f))
	require.Regexp(t, "^pending: re_.* may be our refund that is in progress$", staged(f))

	f.Do(Retry("201"), readEvents)
	require.Equal(t, "partially_refunded 4100: succeeded 500 provider, succeeded 1800 api, succeeded 1800 provider", changes(f))
	require.Empty(t, staged(f))
	checkChanges(t, f)
}

// Our refund is at the provider twice under the same id: the one that is not void is ours.
func TestChanges_sameRefundTwice(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(refundFail), Refund("201"), failRefund)
	f.Exec("DELETE FROM refunds")
	f.Do(RefundAtProvider("amount", "1800", "metadata[account_id]", f.Account.String(), "metadata[order_id]", OrderID(f.Account, f.Key).String(),
		"metadata[refund_id]", RefundID(f.Account, f.RefundKey()).String()), readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 api, failed 1800 provider", changes(f))
	require.EqualValues(t, "succeeded", f.GetRefund(f.RefundKey()).Status)
	checkChanges(t, f)
}

// makeRefundAfterFailure lets the provider execute a refund after an operator has closed it.
func makeRefundAfterFailure(f *Fixture) {
	f.T.Helper()
	later := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.ErrorLater, Endpoint: MakeRefund})
	f.Do(Refund("503 outcome unknown, 1h0m0s"))
	f.AgeLastRun(time.Hour)
	ExpireProviderKeys(f)
	require.Equal(f.T, "422 canceled", Outcome(f.ResolveKey(f.RefundKey())))
	later.Release()
}

func TestChanges_refundMadeAfterFailure(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa), makeRefundAfterFailure)
	f.Do(readEvents, Retry("422 canceled"))
	require.Equal(t, "partially_refunded 1800: succeeded 1800 api", changes(f))
	require.Equal(t, []string{"refund_made_after_failure"}, findings(f))
	checkChanges(t, f)
}

// Staff remove the metadata of a refund, so it counts as one of the dashboard, and put it back.
func TestChanges_metadataIsBack(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa), makeRefundAfterFailure)
	ours := maps.Clone(latestRefund(f).Metadata)
	f.Do(editRefund(func(r *stripetest.Refund) { clear(r.Metadata) }), readEvents)
	f.Do(editRefund(func(r *stripetest.Refund) { r.Metadata = ours }), readEvents)
	require.Empty(t, staged(f))
	require.Equal(t, "partially_refunded 1800: failed 1800 api, succeeded 1800 provider", changes(f))
	checkChanges(t, f)
}

// The record of a reaped key's refund changes, too.
func TestChanges_reapedKey(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(PendingRefund), Refund("201"))
	require.Equal(t, 2, idempotencytest.Reap(t, f.Pool))
	f.Do(failRefund, deliverEvents)
	require.Equal(t, "paid 0: failed 1800 api", changes(f))
	require.Equal(t, "201", Outcome(f.RefundOrder("another-refund-of-it", `{"amount":300}`)), "the amount is released")
	checkChanges(t, f)
}

func editRefund(edit func(*stripetest.Refund)) Step {
	return func(f *Fixture) {
		f.T.Helper()
		require.NoError(f.T, f.Stripe.EditRefund(latestRefund(f).ID, edit))
	}
}
