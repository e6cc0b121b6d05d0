package reconcile_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// providerChange is what happens at the provider after a response.
type providerChange struct {
	before []Step // known to us
	act    []Step
	want   string
	late   bool // a refund fails that our records have, so an operator must know it
}

var providerChanges = map[string]providerChange{
	"a part is refunded at the dashboard": {
		[]Step{CreatePaid(Visa)}, []Step{refundAtDashboard(1800, "")}, "partially_refunded 1800: succeeded 1800 provider", false,
	},
	"a refund of the dashboard fails": {
		[]Step{CreatePaid(refundFail)}, []Step{refundAtDashboard(1800, "duplicate"), failRefund}, "paid 0: failed 1800 provider", false,
	},
	"the payment is unknown to us, and refunded at the dashboard": {
		[]Step{KillDuring(Confirm)}, []Step{refundAtDashboard(1800, "")}, "partially_refunded 1800: succeeded 1800 provider", false,
	},
	"an inquiry": {
		[]Step{CreatePaid(Visa)}, []Step{dispute(4300, "warning_needs_response")}, "paid 0: ; warning_needs_response 4300", false,
	},
	"a dispute is lost, and then won": {
		[]Step{CreatePaid(Visa)}, []Step{dispute(4300, "needs_response", "lost", "won")}, "paid 0: ; won 4300", false,
	},
	"a lost dispute needs a response again": {
		[]Step{CreatePaid(Visa)}, []Step{dispute(4300, "lost", "needs_response")}, "paid 0: ; needs_response 4300", false,
	},
}

// Whatever happens to the events, our records are those of the provider in the end (R27, the provider's
// events).
func TestChanges(t *testing.T) {
	t.Parallel()
	lose := func(f *Fixture) { f.Stripe.EditEvents(func(e *stripetest.Event) { e.Times = 0 }) }
	advance := func(d time.Duration) Step { return func(f *Fixture) { f.Stripe.Advance(d) } }
	for name, test := range map[string]struct {
		eventDelay time.Duration
		learn      []Step
	}{
		"the webhook is lost":                {learn: []Step{readEvents}},
		"the list has lost the events":       {learn: []Step{lose, deliverEvents}},
		"webhook and list":                   {learn: []Step{deliverEvents, readEvents}},
		"20 days late":                       {learn: []Step{advance(20 * 24 * time.Hour), readEvents}},
		"listed five minutes late":           {eventDelay: 5 * time.Minute, learn: []Step{readEvents, advance(5 * time.Minute), readEvents}},
		"twice":                              {learn: []Step{doubleEvents, readEvents, deliverEvents, deliverEvents}},
		"in the wrong order":                 {learn: []Step{deliverInReverse}},
		"the list fails for a day":           {learn: []Step{listFails, advance(24 * time.Hour), readEvents}},
		"the place is lost":                  {learn: []Step{readEvents, sql("DELETE FROM provider_event_place"), sql("DELETE FROM provider_events"), readEvents}},
		"the place is that of a backup":      {learn: []Step{readEvents, sql("UPDATE provider_event_place SET read_until = read_until - interval '3 days'"), sql("DELETE FROM provider_events"), readEvents}},
		"two completers":                     {learn: []Step{twoCompleters}},
		"the inbox is lost after the commit": {learn: []Step{readEvents, sql("TRUNCATE provider_events"), readEvents}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := NewFixture(t, Setup{Concurrent: true, Connections: 4, EventDelay: test.eventDelay})
			orders := map[string]*Fixture{}
			for name, change := range providerChanges {
				orders[name] = shared.WithNewKey(t)
				orders[name].Do(change.before...)
			}
			if test.eventDelay == 0 {
				shared.Do(readEvents)
			}
			for name, change := range providerChanges {
				orders[name].Do(change.act...)
			}
			shared.Do(test.learn...)
			late := []string{}
			for name, change := range providerChanges {
				require.Equal(t, change.want, changes(orders[name]), name)
				if change.late {
					late = append(late, "refund_failed_late")
				}
			}
			checkChanges(t, shared)
			require.Empty(t, staged(shared))
			require.Equal(t, late, findings(shared))

			// What is known is not read again.
			shared.Transport.Reset()
			shared.Do(readEvents, ExpectCalls("get 200, events 200"))
		})
	}
}

func doubleEvents(f *Fixture) { f.Stripe.EditEvents(func(e *stripetest.Event) { e.Times = 2 }) }

func deliverInReverse(f *Fixture) {
	f.T.Helper()
	for _, e := range slices.Backward(events(f)) {
		deliverChange(f, e)
	}
}

func listFails(f *Fixture) {
	f.T.Helper()
	f.Do(MakeUnavailable(ListEvents))
	for range 3 {
		require.Error(f.T, f.Changes.ReadList(f.T.Context()))
	}
	f.Faults[0].Release()
}

func twoCompleters(f *Fixture) {
	f.T.Helper()
	var both errgroup.Group
	for range 2 {
		both.Go(func() error {
			err := f.Changes.ReadList(f.T.Context())
			if err == nil {
				_, err = f.Changes.Worker().RunOnce(f.T.Context())
			}
			return err
		})
	}
	require.NoError(f.T, both.Wait())
	f.Do(readEvents) // what one of them has claimed but not ended
}

func TestChanges_place(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa))
	place := func() (at time.Time) {
		require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT coalesce(max(read_until), 'epoch') FROM provider_event_place").Scan(&at))
		return at
	}
	fails := func(learn ...Step) {
		t.Helper()
		before := place()
		f.Do(learn...)
		require.Error(t, f.Changes.ReadList(t.Context()))
		require.Equal(t, before, place(), "the place moved although the list was not read")
		f.Transport.Intercept(nil)
	}
	fails(AnotherAccount)
	f.Do(readEvents)
	first := place()
	goBack := func(interval string) {
		f.Exec("UPDATE provider_event_place SET read_until = read_until - $1::interval", interval)
	}
	goBack("1 hour")
	f.Do(readEvents)
	require.WithinDuration(t, first, place(), time.Minute, "an empty page moves it")

	for range 150 {
		f.Do(refundAtDashboard(1, ""))
	}
	goBack("1 hour")
	fails(Fault(stripetest.NextPageError, ListEvents))
	f.Faults[0].Release()
	fails(Fault(stripetest.Forbidden, ListEvents))
	f.Faults[1].Release()
	fails(answerWithDate("unreadable"))
	require.Empty(t, findings(f))

	goBack("31 days")
	f.Do(readEvents)
	require.Equal(t, []string{"events_missed"}, findings(f))
	require.Equal(t, 1, f.Count("SELECT count(*) FROM staged_jobs WHERE args->>'command' = 'orders reconcile --since 746h'"))
	f.Do(readEvents)
	require.Equal(t, []string{"events_missed"}, findings(f))
	checkChanges(t, f) // also the second page of the refunds
}

// The index of the orders decides whose event it is, without a call.
func TestChanges_foreignEvents(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa), readEvents)
	other := f.WithNewKey(t)
	other.Do(Create("201"), refundAtDashboard(0, ""), LoseRows) // of another database
	f.Stripe.ForeignEvents(150)
	f.Transport.Reset()
	f.Do(readEvents, ExpectCalls("get 200, events 200 ×2"))
	require.Equal(t, 151, f.Count("SELECT count(*) FROM provider_events"))
	require.Empty(t, staged(f))
	f.Stripe.EditEvents(func(e *stripetest.Event) { e.Created -= 3600 })
	f.Exec("UPDATE provider_events SET received_at = received_at - interval '32 days'")
	f.Do(readEvents)
	require.Zero(t, f.Count("SELECT count(*) FROM provider_events"))
}

// Events of old versions of the API do not name the intent, and thin events nothing.
func TestChanges_unreadableEvent(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa))
	_, err := deliverEventAbout(f, "charge.dispute.created", map[string]any{"object": "dispute", "id": "dp_1"})
	require.NoError(t, err)
	_, err = deliverEventAbout(f, "charge.dispute.created", map[string]any{"object": "dispute", "id": "dp_2", "payment_intent": nil})
	require.NoError(t, err)
	require.Equal(t, []string{"event_unreadable"}, findings(f))
	require.Equal(t, 1, f.Count("SELECT count(*) FROM provider_events"))
}

// No clock moves the place in the list ahead of what was read, so no dispute is skipped (R8).
func TestChanges_wrongClocks(t *testing.T) {
	t.Parallel()
	const wrong = 48 * time.Hour
	for name, test := range map[string]struct {
		date     time.Duration // of one response
		warnings int
		unread   time.Duration // as the alert sees it
	}{
		"a response's clock is ahead": {wrong, 1, 0},
		"a response's clock is late":  {-wrong, 1, wrong},
		"both clocks were ahead":      {0, 0, time.Hour}, // since the account was created
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{}, CreatePaid(Visa))
			f.Exec("UPDATE accounts SET created_at = created_at - interval '1 hour'")
			unread := func() time.Duration {
				unread, err := reconcile.Unread(t.Context(), f.Pool)
				require.NoError(t, err)
				return unread
			}
			f.Do(answerWithDate(time.Now().Add(test.date).UTC().Format(http.TimeFormat)), readEvents)
			f.Transport.Intercept(nil)
			if test.date == 0 {
				f.Exec("UPDATE provider_event_place SET read_until = now() + $1::interval", wrong)
			}
			require.Equal(t, test.warnings, f.Log.Count("level=WARN msg=\"the provider's clock"))
			require.InDelta(t, test.unread.Seconds(), unread().Seconds(), 60)
			f.Do(dispute(700, "lost"), readEvents)
			require.Equal(t, "paid 0: ; lost 700", changes(f))
			require.InDelta(t, 0, unread().Seconds(), 60)
			checkChanges(t, f)
		})
	}
}

func answerWithDate(date string) Step {
	return func(f *Fixture) {
		f.Transport.Intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && CallOf(req) == ListEvents {
				resp.Header.Set("Date", date)
			}
			return resp, err
		})
	}
}

func deliverEventAbout(f *Fixture, eventType string, object map[string]any) (delivered, error) {
	f.T.Helper()
	payload, signature := stripetest.SignedEvent(WebhookSecret, eventType, object, time.Now())
	return deliver(f, payload, signature)
}

func deliver(f *Fixture, payload []byte, signature string) (delivered, error) {
	f.T.Helper()
	event, err := handleEvent(f.T.Context(), f.Shop, payload, signature)
	if event.Run.Response.Status != 0 {
		f.RecordResponse(idempotency.Request{AccountID: f.Account, Key: f.Key}, event.Run, err)
	}
	return event, err
}

type delivered struct {
	payments.ProviderEvent
	reconcile.Result
}

func handleEvent(ctx context.Context, shop *Shop, payload []byte, signature string) (delivered, error) {
	event, err := shop.Payments.Event(payload, signature)
	if err != nil {
		return delivered{}, err
	}
	result, err := shop.Changes.Handle(ctx, event)
	return delivered{event, result}, err
}

func eventOutcome(event delivered, err error) string {
	switch {
	case err == nil && event.KeyID == uuid.Nil:
		return "not ours"
	case err == nil && event.Run.Response.Status == 0:
		return "held by another run"
	default:
		return Outcome(event.Run, err)
	}
}

func metadata(f *Fixture) map[string]string {
	return map[string]string{
		"account_id":         f.Account.String(),
		"order_id":           OrderID(f.Account, f.Key).String(),
		"idempotency_key_id": idempotency.KeyID(f.Account, f.Key).String(),
	}
}

// What an event says about the payment is not believed, because it may be late or wrong.
func TestHandleEvent_untrue(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, InProcess)
	id := f.IntentID()
	untrue := map[string]any{
		"object": "payment_intent", "id": id, "amount": 1, "amount_received": OrderAmount, "currency": "usd", "metadata": metadata(f),
		"last_payment_error": map[string]any{"type": "card_error", "code": "card_declined", "message": "Your card was declined."},
	}
	for eventType, status := range map[string]string{
		"payment_intent.succeeded": "succeeded", "payment_intent.payment_failed": "requires_payment_method", "payment_intent.canceled": "canceled",
	} {
		untrue["status"] = status
		require.Equal(t, "503 outcome unknown, 30s", eventOutcome(deliverEventAbout(f, eventType, untrue)))
	}
	require.Equal(t, orders.StatusPending, f.GetOrder().Status)
	require.Zero(t, f.Count("SELECT count(*) FROM staged_jobs"))
}

func TestHandleEvent_notOurs(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, StopBefore(Confirm))
	id := f.IntentID()
	another := uuid.New()
	f.Exec("INSERT INTO accounts (id, name) VALUES ($1, 'another')", another)
	before := f.Snapshot()
	with := func(name, value string) map[string]string {
		changed := metadata(f)
		changed[name] = value
		return changed
	}
	for name, object := range map[string]map[string]any{
		"unknown key":              {"object": "payment_intent", "id": id, "metadata": with("idempotency_key_id", uuid.NewString())},
		"account is no UUID":       {"object": "payment_intent", "id": id, "metadata": with("account_id", "' OR true --")},
		"key is no UUID":           {"object": "payment_intent", "id": id, "metadata": with("idempotency_key_id", string(f.Key))},
		"no metadata":              {"object": "payment_intent", "id": id},
		"charge without an intent": {"object": "charge", "id": "ch_1", "payment_intent": nil, "metadata": metadata(f)},
		"no object":                {},
	} {
		event, err := deliverEventAbout(f, "payment_intent.succeeded", object)
		require.Equal(t, "not ours", eventOutcome(event, err), name)
		require.Equal(t, "payment_intent.succeeded", event.Type, name)
		require.NotEmpty(t, event.ID, name)
	}
	require.Equal(t, before, f.Snapshot())
	require.Empty(t, f.Transport.Calls())

	// Every event of an intent finishes its order, also one of an unknown type. Later ones change nothing.
	genuine := map[string]any{"object": "payment_intent", "id": id, "metadata": metadata(f)}
	require.Equal(t, "201", eventOutcome(deliverEventAbout(f, "payment_intent.postponed", genuine)))
	f.CheckFinal()
	before = f.Snapshot()
	f.Transport.Reset()
	require.Equal(t, "201", eventOutcome(deliverEventAbout(f, "payment_intent.payment_failed", genuine)))
	require.Equal(t, before, f.Snapshot())
	require.Empty(t, f.Transport.Calls())
	require.Equal(t, 1, idempotencytest.Reap(t, f.Pool))
	require.Equal(t, "not ours", eventOutcome(deliverEventAbout(f, "payment_intent.succeeded", genuine)))
}
