package orders_test

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/payments/stripetest"
)

// providerChange is what happens at the provider after a response.
type providerChange struct {
	before []step // known to us
	act    []step
	want   string
	late   bool // a refund fails that our records have, so an operator must know it
}

var providerChanges = map[string]providerChange{
	"a part is refunded at the dashboard": {
		[]step{createPaid(visa)}, []step{refundAtDashboard(1800, "")}, "partially_refunded 1800: succeeded 1800 provider", false,
	},
	"a refund of the dashboard fails": {
		[]step{createPaid(refundFail)}, []step{refundAtDashboard(1800, "duplicate"), failRefund}, "paid 0: failed 1800 provider", false,
	},
	"the payment is unknown to us, and refunded at the dashboard": {
		[]step{killDuring(confirm)}, []step{refundAtDashboard(1800, "")}, "partially_refunded 1800: succeeded 1800 provider", false,
	},
	"an inquiry": {
		[]step{createPaid(visa)}, []step{dispute(4300, "warning_needs_response")}, "paid 0: ; warning_needs_response 4300", false,
	},
	"a dispute is lost, and then won": {
		[]step{createPaid(visa)}, []step{dispute(4300, "needs_response", "lost", "won")}, "paid 0: ; won 4300", false,
	},
	"a lost dispute needs a response again": {
		[]step{createPaid(visa)}, []step{dispute(4300, "lost", "needs_response")}, "paid 0: ; needs_response 4300", false,
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
			late := []string{}
			for name, change := range providerChanges {
				require.Equal(t, change.want, orders[name].changes(), name)
				if change.late {
					late = append(late, "refund_failed_late")
				}
			}
			checkChanges(t, shared)
			require.Empty(t, shared.staged())
			require.Equal(t, late, shared.findings())

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
		f.deliverChange(e)
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
				_, err = f.Changes.Worker().RunOnce(f.t.Context())
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
	goBack := func(interval string) {
		f.exec("UPDATE provider_event_place SET read_until = read_until - $1::interval", interval)
	}
	goBack("1 hour")
	f.do(readEvents)
	require.WithinDuration(t, first, place(), time.Minute, "an empty page moves it")

	for range 150 {
		f.do(refundAtDashboard(1, ""))
	}
	goBack("1 hour")
	fails(fault(stripetest.NextPageError, listEvents))
	f.faults[0].Release()
	fails(fault(stripetest.Forbidden, listEvents))
	f.faults[1].Release()
	fails(replaceHeader("Date"))
	require.Empty(t, f.findings())

	goBack("31 days")
	f.do(readEvents)
	require.Equal(t, []string{"events_missed"}, f.findings())
	require.Equal(t, 1, f.count("SELECT count(*) FROM staged_jobs WHERE args->>'command' = 'orders reconcile --since 746h'"))
	f.do(readEvents)
	require.Equal(t, []string{"events_missed"}, f.findings())
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
	f.Stripe.EditEvents(func(e *stripetest.Event) { e.Created -= 3600 })
	f.exec("UPDATE provider_events SET received_at = received_at - interval '32 days'")
	f.do(readEvents)
	require.Zero(t, f.count("SELECT count(*) FROM provider_events"))
}

// A restricted key may not read disputes: refunds are recorded, and the job waits for the permission. The pass ends,
// because no other order can be read either, and the attempt does not count.
func TestChanges_restrictedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{concurrent: true}, createPaid(visa), refundAtDashboard(1800, ""), dispute(700, "won"))
	others := make([]*fixture, 10)
	for i := range others {
		others[i] = f.withNewKey(t)
		others[i].do(createPaid(visa), dispute(700, "won"))
	}
	require.NoError(t, f.Changes.ReadList(t.Context()))
	for endpoint, fault := range map[string]stripetest.Fault{listDisputes: stripetest.Forbidden, listRefunds: stripetest.Unauthorized} {
		f.exec("UPDATE staged_jobs SET run_at = created_at, attempt = $1 WHERE kind = 'provider_change'", jobs.MaxAttempts-1)
		f.exec("UPDATE staged_jobs SET run_at = created_at - interval '1 hour' WHERE id = $1", orderID(f.Account, f.key))
		f.do(func(f *fixture) {
			f.faults = append(f.faults, f.Stripe.Inject(stripetest.Rule{Fault: fault, Endpoint: endpoint, Times: stripetest.Always}))
		})
		f.transport.reset()
		loop := f.Changes.Worker().Loop()
		for range 3 {
			require.NoError(t, loop.Pass(t.Context()))
		}
		loop.Wait()
		require.LessOrEqual(t, strings.Count(f.transport.calls(), "refunds"), loop.Concurrency+1)
		require.Zero(t, f.count("SELECT count(*) FROM staged_jobs WHERE kind = 'provider_change' AND (failed_at IS NOT NULL OR attempt <> $1)", jobs.MaxAttempts-1))
		result, err := f.Changes.Worker().RunOnce(t.Context())
		require.NoError(t, err)
		require.NotZero(t, result[jobs.Misconfigured])
		f.faults[len(f.faults)-1].Release()
		if fault == stripetest.Forbidden {
			require.Equal(t, "partially_refunded 1800: succeeded 1800 provider", f.changes())
			require.Contains(t, f.staged(), "status 403")
		}
	}
	require.LessOrEqual(t, f.log.count("level=ERROR msg=\"provider_change misconfigured"), 4*f.Changes.Worker().Concurrency, "in four passes")
	f.do(readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 provider; won 700", f.changes())
	require.Empty(t, f.staged())
	checkChanges(t, f)
}

// An order that cannot be read blocks no other one, and an operator sees it in the end.
func TestChanges_poison(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{concurrent: true}, createPaid(visa), refundAtDashboard(1800, ""))
	poison := f.withNewKey(t)
	poison.do(createPaid(visa), refundAtDashboard(1800, ""))
	unreadable := f.Stripe.Inject(stripetest.Rule{
		Fault: stripetest.AccountNotReady, Endpoint: listRefunds, OrderID: orderID(f.Account, poison.key).String(), Times: stripetest.Always,
	})
	f.do(readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 provider", f.changes())
	require.Equal(t, "paid 0: ", poison.changes())
	require.Contains(t, f.staged(), "pending: list the refunds of pi_")
	f.exec("UPDATE staged_jobs SET attempt = $1 WHERE kind = 'provider_change'", jobs.MaxAttempts-1)
	f.do(readEvents)
	require.Contains(t, f.staged(), "failed: list the refunds of pi_")
	failed, err := jobs.ListFailed(t.Context(), f.Pool)
	require.NoError(t, err)
	require.Len(t, failed, 1)
	require.Equal(t, orderID(f.Account, poison.key), failed[0].ID)

	unreadable.Release()
	poison.do(refundAtDashboard(0, ""), readEvents)
	require.Equal(t, "refunded 4300: succeeded 1800 provider, succeeded 2500 provider", poison.changes())
	checkChanges(t, f)
}

// A refund or a dispute that this program cannot read hides no other one, and no recorded one is forgotten. The
// job waits for a program that can read it.
func TestChanges_unreadableObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), refundAtDashboard(1800, ""), refundAtDashboard(500, ""), dispute(300, "needs_response"))
	unreadable := "1800"
	f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if call := callOf(req); err != nil || call != listRefunds && call != listDisputes {
			return resp, err
		}
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, resp.Body.Close())
		text = regexp.MustCompile(`"amount": (`+unreadable+`),`).ReplaceAll(text, []byte(`"amount": {"value": $1},`))
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		return resp, err
	})
	f.do(readEvents)
	require.Equal(t, "partially_refunded 500: succeeded 500 provider; needs_response 300", f.changes())
	unreadable = "1800|300"
	f.do(dispute(700, "lost"), readEvents)
	require.Equal(t, "partially_refunded 500: succeeded 500 provider; needs_response 300, lost 700", f.changes())
	require.Contains(t, f.staged(), "pending: list the refunds of pi_")
	require.Contains(t, f.staged(), "unreadable response: "+f.Stripe.Refunds()[0].ID)

	f.transport.intercept(nil)
	f.do(readEvents)
	require.Equal(t, "partially_refunded 2300: succeeded 500 provider, succeeded 1800 provider; needs_response 300, lost 700", f.changes())
	require.Empty(t, f.staged())
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
