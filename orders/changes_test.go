package orders_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/payments/stripetest"
)

var providerChanges = map[string]struct {
	before []step // known to us
	act    []step
	want   string
}{
	"a refund fails late": {
		[]step{createPaid(refundFail), refund("201")}, []step{failRefund}, "paid 0: failed 1800 api",
	},
	"a pending refund fails": {
		[]step{createPaid(pendingRefund), refund("201")}, []step{failRefund}, "paid 0: failed 1800 api",
	},
	"a part is refunded at the dashboard": {
		[]step{createPaid(visa)}, []step{refundAtDashboard(1800, "")}, "partially_refunded 1800: succeeded 1800 provider",
	},
	"the rest is refunded at the dashboard": {
		[]step{createPaid(visa), refund("201")},
		[]step{refundAtDashboard(0, "expired_uncaptured_charge")},
		"refunded 4300: succeeded 1800 api, succeeded 2500 provider",
	},
	"a refund of the dashboard fails": {
		[]step{createPaid(refundFail)}, []step{refundAtDashboard(1800, "duplicate"), failRefund}, "paid 0: failed 1800 provider",
	},
	"the payment is unknown to us, and refunded at the dashboard": {
		[]step{killDuring(confirm)}, []step{refundAtDashboard(1800, "")}, "partially_refunded 1800: succeeded 1800 provider",
	},
	"staff edits the metadata": {
		[]step{createPaid(visa), refund("201")},
		[]step{editRefund(func(r *stripetest.Refund) { clear(r.Metadata) })},
		"partially_refunded 1800: succeeded 1800 api",
	},
	"a status that we do not know": {
		[]step{createPaid(visa), refund("201")},
		[]step{editRefund(func(r *stripetest.Refund) { r.Status = "reversed" })},
		"partially_refunded 1800: pending 1800 api",
	},
	"an inquiry": {
		[]step{createPaid(visa)}, []step{dispute(4300, "warning_needs_response")}, "paid 0: ; warning_needs_response 4300",
	},
	"a dispute of a part is lost": {
		[]step{createPaid(visa), refund("201")},
		[]step{dispute(700, "needs_response", "under_review", "lost")},
		"partially_refunded 1800: succeeded 1800 api; lost 700",
	},
	"a dispute is lost, and then won": {
		[]step{createPaid(visa)}, []step{dispute(4300, "needs_response", "lost", "won")}, "paid 0: ; won 4300",
	},
	"a lost dispute needs a response again": {
		[]step{createPaid(visa)}, []step{dispute(4300, "lost", "needs_response")}, "paid 0: ; needs_response 4300",
	},
}

// Whatever happens to the events, our records are those of the provider in the end (R27, the provider's
// events).
func TestChanges(t *testing.T) {
	t.Parallel()
	lose := func(f *fixture) { f.Stripe.EditEvents(func(e *stripetest.Event) { e.Times = 0 }) }
	advance := func(d time.Duration) step { return func(f *fixture) { f.Stripe.Advance(d) } }
	sql := func(query string) step { return func(f *fixture) { f.exec(query) } }
	for name, test := range map[string]struct {
		eventDelay time.Duration
		learn      []step
	}{
		"the webhook is lost":                {learn: []step{readEvents}},
		"the list has lost the events":       {learn: []step{lose, deliverEvents}},
		"webhook and list":                   {learn: []step{deliverEvents, readEvents}},
		"20 days late":                       {learn: []step{advance(20 * 24 * time.Hour), readEvents}},
		"listed five minutes late":           {eventDelay: 5 * time.Minute, learn: []step{readEvents, advance(5 * time.Minute), readEvents}},
		"twice":                              {learn: []step{doubleEvents, readEvents, deliverEvents, deliverEvents}},
		"in the wrong order":                 {learn: []step{deliverInReverse}},
		"the list fails for a day":           {learn: []step{listFails, advance(24 * time.Hour), readEvents}},
		"the place is lost":                  {learn: []step{readEvents, sql("DELETE FROM provider_event_place"), sql("DELETE FROM provider_events"), readEvents}},
		"the place is that of a backup":      {learn: []step{readEvents, sql("UPDATE provider_event_place SET read_until = read_until - interval '3 days'"), sql("DELETE FROM provider_events"), readEvents}},
		"two completers":                     {learn: []step{twoCompleters}},
		"the inbox is lost after the commit": {learn: []step{readEvents, sql("TRUNCATE provider_events"), readEvents}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := newFixture(t, options{concurrent: true, connections: 4, eventDelay: test.eventDelay})
			orders := map[string]*fixture{}
			for name, change := range providerChanges {
				orders[name] = shared.withNewKey(t)
				orders[name].do(change.before...)
			}
			if test.eventDelay == 0 {
				shared.do(readEvents)
			}
			for name, change := range providerChanges {
				orders[name].do(change.act...)
			}
			shared.do(test.learn...)
			for name, change := range providerChanges {
				require.Equal(t, change.want, orders[name].changes(), name)
			}
			checkChanges(t, shared)
			require.Empty(t, shared.staged())
			require.Equal(t, []string{"refund_failed_late", "refund_failed_late"}, shared.findings())

			// What is known is not read again.
			shared.transport.reset()
			shared.do(readEvents, expectCalls("get 200, events 200"))
		})
	}
}

func doubleEvents(f *fixture) { f.Stripe.EditEvents(func(e *stripetest.Event) { e.Times = 2 }) }

func deliverInReverse(f *fixture) {
	f.t.Helper()
	for _, e := range slices.Backward(f.events()) {
		require.NoError(f.t, f.deliverChange(e))
	}
}

func listFails(f *fixture) {
	f.t.Helper()
	f.do(makeUnavailable(listEvents))
	for range 3 {
		require.Error(f.t, f.Changes.ReadList(f.t.Context()))
	}
	f.faults[0].Release()
}

func twoCompleters(f *fixture) {
	f.t.Helper()
	var both errgroup.Group
	for range 2 {
		both.Go(func() error {
			err := f.Changes.ReadList(f.t.Context())
			if err == nil {
				_, err = f.Changes.RunOnce(f.t.Context())
			}
			return err
		})
	}
	require.NoError(f.t, both.Wait())
	f.do(readEvents) // what one of them has claimed but not ended
}

func TestChanges_place(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa))
	place := func() (at time.Time) {
		require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT coalesce(max(read_until), 'epoch') FROM provider_event_place").Scan(&at))
		return at
	}
	fails := func(learn ...step) {
		t.Helper()
		before := place()
		f.do(learn...)
		require.Error(t, f.Changes.ReadList(t.Context()))
		require.Equal(t, before, place(), "the place moved although the list was not read")
		f.transport.intercept(nil)
	}
	fails(anotherAccount)
	f.do(readEvents)
	first := place()
	f.Stripe.Advance(time.Hour)
	f.do(readEvents)
	require.WithinDuration(t, first.Add(time.Hour), place(), time.Minute, "an empty page moves it, by the provider's clock")

	for range 150 {
		f.do(refundAtDashboard(1, ""))
	}
	f.Stripe.Advance(time.Hour)
	fails(fault(stripetest.NextPageError, listEvents))
	f.faults[0].Release()
	fails(fault(stripetest.Forbidden, listEvents))
	f.faults[1].Release()
	fails(replaceHeader("Date"))
	require.Empty(t, f.findings())

	f.Stripe.Advance(31 * 24 * time.Hour)
	f.do(readEvents)
	require.Equal(t, []string{"events_missed"}, f.findings())
	require.Equal(t, 1, f.count("SELECT count(*) FROM discrepancies WHERE data->>'command' = 'orders reconcile --since 746h'"))
	f.do(readEvents)
	require.Equal(t, []string{"events_missed"}, f.findings())
}

// A list that was requested before a change is recorded after a later list has been.
func TestChanges_laterReadWins(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{concurrent: true, connections: 2}, createPaid(pendingRefund), refund("201"))
	f.do(after(listDisputes, func(f *fixture) {
		failRefund(f)
		dispute(700, "lost")(f)
		require.NoError(t, f.Changes.Sync(t.Context(), f.Account, orderID(f.Account, f.key)))
	}))
	require.NoError(t, f.Changes.Sync(t.Context(), f.Account, orderID(f.Account, f.key)))
	require.Equal(t, "paid 0: failed 1800 api; lost 700", f.changes())
	checkChanges(t, f)

	f.exec("UPDATE orders SET provider_read_at = now() + interval '1 day'") // recorded while the clock ran ahead
	f.do(dispute(100, "won"), readEvents)
	require.Equal(t, "paid 0: failed 1800 api; won 100, lost 700", f.changes())
}

// An event arrives while its order's job is being worked off, and has read the provider before.
func TestChanges_eventDuringAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{concurrent: true, connections: 2}, createPaid(visa), readEvents, refundAtDashboard(100, ""))
	f.do(after(listDisputes, func(f *fixture) {
		refundAtDashboard(200, "")(f)
		require.NoError(t, f.Changes.ReadList(t.Context()))
	}))
	f.do(readEvents, readEvents)
	require.Equal(t, "partially_refunded 300: succeeded 100 provider, succeeded 200 provider", f.changes())
	checkChanges(t, f)
	require.Empty(t, f.staged())
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

// The customer pays with another card after the failure, and is refunded at the dashboard. The order stays
// failed.
func TestChanges_failedOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, offSession, payWith(declinedCard), create("402 card_declined generic_decline"))
	require.NoError(t, f.Stripe.ConfirmAsCustomer(f.intentID(), visa))
	f.do(refundAtDashboard(0, ""), readEvents)
	require.Equal(t, "payment_failed 0: succeeded 4300 provider", f.changes())
}

// The index of the orders decides whose event it is, without a call.
func TestChanges_foreignEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), readEvents)
	other := f.withNewKey(t)
	other.do(create("201"), refundAtDashboard(0, ""), loseRows) // of another database
	f.Stripe.ForeignEvents(150)
	f.transport.reset()
	f.do(readEvents, expectCalls("get 200, events 200 ×2"))
	require.Equal(t, 151, f.count("SELECT count(*) FROM provider_events"))
	require.Empty(t, f.staged())
	f.Stripe.Advance(time.Hour)
	f.do(readEvents)
	f.exec("UPDATE provider_events SET received_at = received_at - interval '32 days'")
	f.do(readEvents)
	require.Zero(t, f.count("SELECT count(*) FROM provider_events"))
}

// A restricted key may not read disputes: refunds are recorded, and the job waits for the permission.
func TestChanges_restrictedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), refundAtDashboard(1800, ""), dispute(700, "won"))
	f.do(fault(stripetest.Forbidden, listDisputes), readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 provider", f.changes())
	require.Contains(t, f.staged(), "status 403")
	f.faults[0].Release()
	f.do(readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 provider; won 700", f.changes())
	checkChanges(t, f)
}

// An order that cannot be read blocks no other one, and an operator sees it in the end.
func TestChanges_poison(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{concurrent: true}, createPaid(visa), refundAtDashboard(1800, ""))
	poison := f.withNewKey(t)
	poison.do(createPaid(visa), refundAtDashboard(1800, ""))
	unreadable := f.Stripe.Inject(stripetest.Rule{
		Fault: stripetest.Forbidden, Endpoint: listRefunds, OrderID: orderID(f.Account, poison.key).String(), Times: stripetest.Always,
	})
	f.do(readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 provider", f.changes())
	require.Equal(t, "paid 0: ", poison.changes())
	require.Contains(t, f.staged(), "pending: list the refunds of pi_")
	f.exec("UPDATE staged_jobs SET attempt = $1 WHERE kind = 'provider_change'", jobs.MaxAttempts-1)
	f.do(readEvents)
	require.Contains(t, f.staged(), "failed: list the refunds of pi_")
	failed, err := jobs.ListFailed(t.Context(), f.Pool, orderID(f.Account, poison.key).String(), 10)
	require.NoError(t, err)
	require.Len(t, failed, 1)

	unreadable.Release()
	poison.do(refundAtDashboard(0, ""), readEvents)
	require.Equal(t, "refunded 4300: succeeded 1800 provider, succeeded 2500 provider", poison.changes())
	checkChanges(t, f)
}

// Events of old versions of the API do not name the intent, and thin events nothing.
func TestChanges_unreadableEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa))
	_, err := f.deliverEventAbout("charge.dispute.created", map[string]any{"object": "dispute", "id": "dp_1"})
	require.NoError(t, err)
	_, err = f.deliverEventAbout("charge.dispute.created", map[string]any{"object": "dispute", "id": "dp_2", "payment_intent": nil})
	require.NoError(t, err)
	require.Equal(t, []string{"event_unreadable"}, f.findings())
	require.Equal(t, 1, f.count("SELECT count(*) FROM provider_events"))
}

// After lost rows, a run adopts a charge that has been refunded and disputed. The list may not repeat
// these events.
func TestLostRows_adoptsRefunds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, create("201"), refundAtDashboard(1800, ""), dispute(700, "lost"), readEvents)
	f.exec("DELETE FROM refunds")
	f.exec("DELETE FROM audit_records WHERE action LIKE 'refund.%'")
	f.do(loseRows, rateLimit(createIntent), create("503 unavailable, 2s"), retry("201"), readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 provider; lost 700", f.changes())
	checkChanges(t, f)
	f.do(expectCharges(1))
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
