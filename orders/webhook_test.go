package orders_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

const webhookSecret = "whsec_shop"

// intentID is the order's at the provider, whether we know of it or not.
func (s *shop) intentID() string {
	s.t.Helper()
	intents := s.intents()
	require.Len(s.t, intents, 1)
	return intents[0].ID
}

// hear delivers an event about the order's intent as it is now, and returns what
// is said of the order then.
func (s *shop) hear(eventType string) (orders.Event, error) {
	s.t.Helper()
	payload, signature, err := s.stripe.Event(webhookSecret, eventType, s.intentID())
	require.NoError(s.t, err)
	return s.deliver(payload, signature)
}

// hearOf delivers an event about any object.
func (s *shop) hearOf(eventType string, object map[string]any) (orders.Event, error) {
	s.t.Helper()
	return s.deliver(stripetest.SignedEvent(webhookSecret, eventType, object, time.Now()))
}

func (s *shop) deliver(payload []byte, signature string) (orders.Event, error) {
	s.t.Helper()
	event, err := handleEvent(s.t.Context(), s.service, payload, signature)
	if event.Result.Response.Status != 0 {
		s.note(orders.Request{Request: idempotency.Request{AccountID: s.account, Key: s.key}}, event.Result, err)
	}
	return event, err
}

// handleEvent verifies and handles a delivery.
func handleEvent(ctx context.Context, service *orders.Service, payload []byte, signature string) (orders.Event, error) {
	verified, err := service.VerifyEvent(payload, signature)
	if err != nil {
		return orders.Event{}, err
	}
	return service.HandleEvent(ctx, verified)
}

// heard puts what an event brought about into words, see say.
func heard(event orders.Event, err error) string {
	switch {
	case err == nil && event.KeyID == uuid.Nil:
		return "not ours"
	case err == nil && event.Result.Response.Status == 0:
		return "somebody is at it"
	default:
		return say(event.Result, err)
	}
}

// metadata is what the create sends.
func (s *shop) metadata() map[string]string {
	return map[string]string{
		"account_id":         s.account.String(),
		"order_id":           orderOf(s.account, s.key).String(),
		"idempotency_key_id": idempotency.KeyID(s.account, s.key).String(),
	}
}

// snapshot is every byte that an order writes.
func (s *shop) snapshot() []string {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `
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
	require.NoError(s.t, err)
	return texts(s.t, rows)
}

// The provider decides a payment days later, and its event finishes the order.
func TestHandleEvent_paymentDecidedLater(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		success   bool
		eventType string
		answer    string
	}{
		"paid":                           {true, "payment_intent.succeeded", "201"},
		"paid, says its charge":          {true, "charge.succeeded", "201"},
		"paid, and called declined":      {true, "payment_intent.payment_failed", "201"},
		"declined":                       {false, "payment_intent.payment_failed", "402 card_declined generic_decline"},
		"declined, says its charge":      {false, "charge.failed", "402 card_declined generic_decline"},
		"declined, and called paid":      {false, "payment_intent.succeeded", "402 card_declined generic_decline"},
		"declined, called something":     {false, "payment_intent.created", "402 card_declined generic_decline"},
		"paid, called what nobody knows": {true, "payment_intent.postponed", "201"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			require.Equal(t, "unknown 30s", say(s.buy(stripetest.ProcessingCard)))
			id := s.intentID()
			event, err := s.hear("payment_intent.processing")
			require.NoError(t, err, "true, and no reason to deliver it again")
			require.Zero(t, event.Result.Response)
			require.Equal(t, idempotency.KeyID(s.account, s.key), event.KeyID)
			require.Equal(t, "unknown 30s", heard(s.hear("payment_intent.succeeded")), "too early to be true")

			require.NoError(t, s.stripe.Settle(id, test.success))
			s.wire.forget()
			event, err = s.hear(test.eventType)
			require.Equal(t, test.answer, heard(event, err))
			require.Equal(t, test.eventType, event.Type)
			require.Equal(t, "get 200", s.wire.said(), "it was asked, not believed")
			require.Equal(t, idempotency.RecoveryPoint("charge_created"), event.Result.From)
			s.checkFinal()

			receipts, moved := 0, map[string]int64{}
			if test.success {
				receipts, moved["usd"] = 1, basketAmount
			}
			require.Equal(t, receipts, s.count("SELECT count(*) FROM staged_jobs"))
			require.Equal(t, moved, s.stripe.MoneyMoved())
			require.Equal(t, test.answer, say(s.buy(stripetest.ProcessingCard)), "the client's retry")
		})
	}
}

// Whatever an event says has happened, nothing has until the provider says so
// when it is asked.
func TestHandleEvent_isNotBelieved(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	require.Equal(t, "unknown 30s", say(s.buy(stripetest.ProcessingCard)))
	id := s.intentID()
	lie := func(status string) map[string]any {
		return map[string]any{
			"object": "payment_intent", "id": id, "status": status, "amount": basketAmount, "amount_received": basketAmount,
			"currency": "usd", "latest_charge": "ch_1", "metadata": s.metadata(),
			"last_payment_error": map[string]any{"type": "card_error", "code": "card_declined", "message": "Your card was declined."},
		}
	}
	for _, eventType := range []string{"payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled"} {
		for _, status := range []string{"succeeded", "requires_payment_method", "canceled"} {
			require.Equal(t, "unknown 30s", heard(s.hearOf(eventType, lie(status))))
		}
	}
	require.Equal(t, "unknown 30s", heard(s.hearOf("charge.succeeded", map[string]any{
		"object": "charge", "id": "ch_1", "payment_intent": id, "paid": true, "status": "succeeded", "metadata": s.metadata(),
	})))
	require.Equal(t, orders.StatusPending, s.order().Status)
	require.Empty(t, s.stripe.MoneyMoved())
	require.Zero(t, s.count("SELECT count(*) FROM staged_jobs"))

	// Nor is it whose intent an event names: ours alone is asked about.
	require.NoError(t, s.stripe.Settle(id, true))
	another := lie("canceled")
	another["id"], another["amount"] = "pi_another", 1
	s.wire.forget()
	require.Equal(t, "201", heard(s.hearOf("payment_intent.canceled", another)))
	require.Equal(t, "get 200", s.wire.said())
	require.Zero(t, s.log.alarms())
	s.checkFinal()
}

// Events come twice, late and out of order. A finished order stays as it is, and
// the provider is not asked again.
func TestHandleEvent_afterTheEnd(t *testing.T) {
	t.Parallel()
	for card, answer := range map[string]string{
		visa:                                  "201",
		"pm_card_visa_chargeDeclinedLostCard": "402 card_declined lost_card",
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			require.Equal(t, answer, say(s.buy(card)))
			id := s.intentID()
			before := s.snapshot()
			s.wire.forget()
			payload, signature, err := s.stripe.Event(webhookSecret, "payment_intent.succeeded", id)
			require.NoError(t, err)
			for range 3 {
				event, err := s.deliver(payload, signature)
				require.Equal(t, answer, heard(event, err))
				require.True(t, event.Result.Replayed)
			}
			for _, eventType := range []string{
				"payment_intent.payment_failed", "payment_intent.created", "payment_intent.canceled", "payment_intent.processing", "charge.refunded",
			} {
				require.Equal(t, answer, heard(s.hear(eventType)))
			}
			require.Equal(t, before, s.snapshot())
			require.Empty(t, s.wire.said())

			s.exec("DELETE FROM idempotency_keys")
			before = s.snapshot()
			require.Equal(t, "not ours", heard(s.hear("payment_intent.succeeded")), "reaped")
			require.Equal(t, before, s.snapshot())
			require.Empty(t, s.wire.said())
		})
	}
}

// The provider knows the intent, and its answer to us was lost: the event comes
// before we have committed any id.
func TestHandleEvent_beforeTheIntentIsKnown(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	require.Equal(t, "unavailable 1s", say(s.buyWith(visa, failing(stripetest.CloseAfter, createEndpoint))))
	require.Nil(t, s.order().PaymentIntentID)
	s.wire.forget()
	event, err := s.hear("payment_intent.created")
	require.Equal(t, "201", heard(event, err))
	require.Equal(t, idempotency.RecoveryPoint("order_created"), event.Result.From)
	require.Equal(t, "create 200, get 200, confirm 200", s.wire.said())
	require.Equal(t, s.intentID(), *s.order().PaymentIntentID)
	s.checkFinal()
}

// The card is charged, and everything after that was lost.
func TestHandleEvent_chargedUnheard(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	require.Equal(t, "unknown 1s", say(s.buyWith(visa, failing(stripetest.CloseAfter, confirmEndpoint, getEndpoint))))
	require.Equal(t, "201", heard(s.hear("charge.succeeded")))
	s.checkFinal()
}

// An event must not wait for the run that it is about, nor bring it to a stop.
func TestHandleEvent_somebodyIsAtIt(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	s.stopAt(confirmEndpoint, visa)
	s.lease(0)
	before := s.snapshot()
	event, err := s.hear("payment_intent.created")
	require.Equal(t, "somebody is at it", heard(event, err))
	require.Equal(t, idempotency.KeyID(s.account, s.key), event.KeyID)
	require.Equal(t, before, s.snapshot())
	require.Empty(t, s.wire.said())

	s.lease(lockTimeout + time.Second)
	require.Equal(t, "201", heard(s.hear("payment_intent.created")), "the same after the run died")
	s.checkFinal()
}

// The provider is told to deliver again what could not be finished.
func TestHandleEvent_unfinished(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	s.stopAt(confirmEndpoint, visa)
	id := s.intentID()
	down := s.stripe.Inject(failing(stripetest.Unavailable, getEndpoint)[0])
	payload, signature, err := s.stripe.Event(webhookSecret, "payment_intent.created", id)
	require.NoError(t, err)
	require.Equal(t, "unknown 2s", heard(s.deliver(payload, signature)))
	down.Release()

	s.exec("UPDATE idempotency_keys SET recovery_point = 'card_admired'")
	_, err = s.deliver(payload, signature)
	require.ErrorIs(t, err, idempotency.ErrNewerVersion)
	s.exec("UPDATE idempotency_keys SET recovery_point = 'charge_created'")

	require.Equal(t, "201", heard(s.deliver(payload, signature)))
	s.checkFinal()
	s.pool.Close()
	_, err = s.deliver(payload, signature)
	require.ErrorIs(t, err, postgres.ErrUnavailable)
}

// An order is waiting. None of these is about it, and they leave it waiting.
func TestHandleEvent_notOurs(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	s.stopAt(confirmEndpoint, visa)
	id := s.intentID()
	another := uuid.New()
	s.exec("INSERT INTO accounts (id, name) VALUES ($1, 'another')", another)
	before := s.snapshot()
	with := func(name string, value any) map[string]any {
		metadata := map[string]any{}
		for name, value := range s.metadata() {
			metadata[name] = value
		}
		metadata[name] = value
		return metadata
	}
	for name, object := range map[string]map[string]any{
		"another account's":     {"object": "payment_intent", "id": id, "metadata": with("account_id", another)},
		"an account of nobody":  {"object": "payment_intent", "id": id, "metadata": with("account_id", uuid.New())},
		"a key of nobody":       {"object": "payment_intent", "id": id, "metadata": with("idempotency_key_id", uuid.New())},
		"the key of an account": {"object": "payment_intent", "id": id, "metadata": with("idempotency_key_id", s.account)},
		"an account in words":   {"object": "payment_intent", "id": id, "metadata": with("account_id", "' OR true --")},
		"a key in words":        {"object": "payment_intent", "id": id, "metadata": with("idempotency_key_id", string(s.key))},
		"a key that is null":    {"object": "payment_intent", "id": id, "metadata": with("idempotency_key_id", nil)},
		"a key that is a list":  {"object": "payment_intent", "id": id, "metadata": with("idempotency_key_id", []string{"x"})},
		"another program's":     {"object": "payment_intent", "id": id, "metadata": map[string]string{"cart": "7"}},
		"without metadata":      {"object": "payment_intent", "id": id},
		"without an id":         {"object": "payment_intent", "metadata": s.metadata()},
		"a charge of no intent": {"object": "charge", "id": "ch_1", "payment_intent": nil, "metadata": s.metadata()},
		"a customer":            {"object": "customer", "id": "cus_1", "metadata": s.metadata()},
		"nothing":               {},
	} {
		event, err := s.hearOf("payment_intent.succeeded", object)
		require.Equal(t, "not ours", heard(event, err), name)
		require.Equal(t, "payment_intent.succeeded", event.Type, name)
		require.NotEmpty(t, event.ID, name)
	}
	require.Equal(t, before, s.snapshot())
	require.Empty(t, s.wire.said())

	require.Equal(t, "201", heard(s.hearOf("payment_intent.succeeded", map[string]any{"object": "payment_intent", "id": id, "metadata": s.metadata()})))
	s.checkFinal()
}

func TestHandleEvent_refused(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	s.stopAt(confirmEndpoint, visa)
	payload, _, err := s.stripe.Event(webhookSecret, "payment_intent.succeeded", s.intentID())
	require.NoError(t, err)
	before := s.snapshot()
	_, forged, err := s.stripe.Event("whsec_another", "payment_intent.succeeded", s.intentID())
	require.NoError(t, err)
	for _, signature := range []string{"", forged} {
		event, err := s.deliver(payload, signature)
		require.ErrorIs(t, err, orders.ErrEventRefused)
		require.Empty(t, event)
	}
	require.Equal(t, before, s.snapshot())
	require.Empty(t, s.wire.said())
}

// The same event five times at once, and the client's retries between them.
func TestHandleEvent_concurrent(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{conns: 4, crowd: true})
	s.stopAt(confirmEndpoint, visa)
	s.stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: confirmEndpoint, Delay: 50 * time.Millisecond})
	payload, signature, err := s.stripe.Event(webhookSecret, "payment_intent.created", s.intentID())
	require.NoError(t, err)
	req := request(t, s.account, s.key, visa)

	var group errgroup.Group
	for range 5 {
		group.Go(func() error {
			_, err := handleEvent(t.Context(), s.service, payload, signature)
			return err
		})
		group.Go(func() error {
			if result, err := s.service.Create(t.Context(), req); say(result, err) != "201" && say(result, err) != "in progress" {
				return err
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, "201", say(s.resume()))
	require.Len(t, s.stripe.Charges(), 1)
	s.checkFinal()
}
