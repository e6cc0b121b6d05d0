package orders_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

func (f *fixture) intentID() string {
	f.t.Helper()
	intents := f.intents()
	require.Len(f.t, intents, 1)
	return intents[0].ID
}

func (f *fixture) deliverEvent(eventType string) (delivered, error) {
	f.t.Helper()
	payload, signature, err := f.Stripe.Event(orderstest.WebhookSecret, eventType, f.intentID())
	require.NoError(f.t, err)
	return f.deliver(payload, signature)
}

func (f *fixture) deliverEventAbout(eventType string, object map[string]any) (delivered, error) {
	f.t.Helper()
	return f.deliver(stripetest.SignedEvent(orderstest.WebhookSecret, eventType, object, time.Now()))
}

func (f *fixture) deliver(payload []byte, signature string) (delivered, error) {
	f.t.Helper()
	event, err := handleEvent(f.t.Context(), f.Shop, payload, signature)
	if event.Run.Response.Status != 0 {
		f.recordResponse(idempotency.Request{AccountID: f.Account, Key: f.key}, event.Run, err)
	}
	return event, err
}

type delivered struct {
	payments.ProviderEvent
	reconcile.Result
}

func handleEvent(ctx context.Context, shop *orderstest.Shop, payload []byte, signature string) (delivered, error) {
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
		return outcomeOf(event.Run, err)
	}
}

func (f *fixture) metadata() map[string]string {
	return map[string]string{
		"account_id":         f.Account.String(),
		"order_id":           orderID(f.Account, f.key).String(),
		"idempotency_key_id": idempotency.KeyID(f.Account, f.key).String(),
	}
}

func (f *fixture) snapshot() []string {
	f.t.Helper()
	rows, err := f.Pool.Query(f.t.Context(), `
SELECT k::text FROM idempotency_keys k
UNION ALL
SELECT o::text FROM orders o
UNION ALL
SELECT r::text FROM refunds r
UNION ALL
SELECT a::text FROM audit_records a
UNION ALL
SELECT j::text FROM staged_jobs j
ORDER BY 1`)
	require.NoError(f.t, err)
	return collectStrings(f.t, rows)
}

// An event of any type finishes an order that the provider or the customer has decided.
func TestHandleEvent_decidedLater(t *testing.T) {
	t.Parallel()
	shared := newFixture(t, options{})
	const declined, notApproved = "402 card_declined generic_decline", "402 payment_intent_authentication_failure"
	for name, test := range map[string]struct {
		start     step
		early     []string // events before the act, without an effect
		act       step
		eventType string
		outcome   string
	}{
		"succeeded":                           {inProcess, []string{"payment_intent.processing"}, paymentSucceeds, "payment_intent.succeeded", "201"},
		"succeeded, event of an unknown type": {inProcess, nil, paymentSucceeds, "payment_intent.postponed", "201"},
		"failed":                              {inProcess, nil, paymentFails, "payment_intent.payment_failed", declined},
		"approved": {
			challenge,
			[]string{"payment_intent.requires_action", "payment_intent.created", "payment_intent.succeeded"},
			approve, "payment_intent.succeeded", "201",
		},
		"not approved": {challenge, nil, failChallenge, "payment_intent.payment_failed", notApproved},
	} {
		t.Run(name, func(t *testing.T) {
			f := shared.withNewKey(t)
			f.do(test.start)
			order, history := f.getOrder(), f.history()
			for _, early := range test.early {
				event, err := f.deliverEvent(early)
				require.NoError(t, err, "no error, so the provider does not repeat it")
				require.Zero(t, event.Run.Response)
				require.Equal(t, idempotency.KeyID(f.Account, f.key), event.KeyID)
			}
			require.Equal(t, order, f.getOrder())
			require.Equal(t, history, f.history())

			test.act(f)
			event, err := f.deliverEvent(test.eventType)
			require.Equal(t, test.outcome, eventOutcome(event, err))
			require.Equal(t, test.eventType, event.Type)
			require.Equal(t, idempotency.RecoveryPoint("charge_created"), event.Run.From)
			f.checkFinal()
			f.do(retry(test.outcome))
		})
	}
}

// What an event says about the payment is not believed, because it may be late or forged.
func TestHandleEvent_untrue(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, inProcess)
	id := f.intentID()
	untrue := map[string]any{
		"object": "payment_intent", "id": id, "amount": 1, "amount_received": orderAmount, "currency": "usd", "metadata": f.metadata(),
		"last_payment_error": map[string]any{"type": "card_error", "code": "card_declined", "message": "Your card was declined."},
	}
	for eventType, status := range map[string]string{
		"payment_intent.succeeded": "succeeded", "payment_intent.payment_failed": "requires_payment_method", "payment_intent.canceled": "canceled",
	} {
		untrue["status"] = status
		require.Equal(t, "503 outcome unknown, 30s", eventOutcome(f.deliverEventAbout(eventType, untrue)))
	}
	require.Equal(t, orders.StatusPending, f.getOrder().Status)
	require.Zero(t, f.count("SELECT count(*) FROM staged_jobs"))

	require.NoError(t, f.Stripe.Settle(id, true))
	untrue["id"], untrue["status"] = "pi_another", "canceled"
	require.Equal(t, "201", eventOutcome(f.deliverEventAbout("payment_intent.canceled", untrue)))
	f.checkFinal()
}

func TestHandleEvent_finishedOrder(t *testing.T) {
	t.Parallel()
	for card, want := range map[string]string{visa: "201", declinedCard: "402 card_declined generic_decline"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, payWith(card), create(want))
			for _, finished := range []string{want, "not ours"} {
				before := f.snapshot()
				f.transport.reset()
				for _, eventType := range []string{"payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled"} {
					require.Equal(t, finished, eventOutcome(f.deliverEvent(eventType)))
				}
				require.Equal(t, before, f.snapshot())
				require.Empty(t, f.transport.calls())
				idempotencytest.Reap(t, f.Pool)
			}
		})
	}
}

func TestHandleEvent_notOurs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, stopBefore(confirm))
	id := f.intentID()
	another := uuid.New()
	f.exec("INSERT INTO accounts (id, name) VALUES ($1, 'another')", another)
	before := f.snapshot()
	with := func(name string, value any) map[string]any {
		metadata := map[string]any{}
		for name, value := range f.metadata() {
			metadata[name] = value
		}
		metadata[name] = value
		return metadata
	}
	for name, object := range map[string]map[string]any{
		"unknown key":              {"object": "payment_intent", "id": id, "metadata": with("idempotency_key_id", uuid.New())},
		"account is no UUID":       {"object": "payment_intent", "id": id, "metadata": with("account_id", "' OR true --")},
		"key is no UUID":           {"object": "payment_intent", "id": id, "metadata": with("idempotency_key_id", string(f.key))},
		"no metadata":              {"object": "payment_intent", "id": id},
		"charge without an intent": {"object": "charge", "id": "ch_1", "payment_intent": nil, "metadata": f.metadata()},
		"no object":                {},
	} {
		event, err := f.deliverEventAbout("payment_intent.succeeded", object)
		require.Equal(t, "not ours", eventOutcome(event, err), name)
		require.Equal(t, "payment_intent.succeeded", event.Type, name)
		require.NotEmpty(t, event.ID, name)
	}
	require.Equal(t, before, f.snapshot())
	require.Empty(t, f.transport.calls())

	require.Equal(t, "201", eventOutcome(f.deliverEventAbout("payment_intent.succeeded", map[string]any{"object": "payment_intent", "id": id, "metadata": f.metadata()})))
	f.checkFinal()
}
