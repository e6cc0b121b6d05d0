package stripetest_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/webhook"

	"example.com/orders-api/payments/stripetest"
)

const webhookSecret = "whsec_standin"

// stripe-go accepts the stand-in's events.
func TestEvent_stripeGo(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	id := s.create(visa)

	payload, signature, err := s.Event(webhookSecret, "payment_intent.succeeded", id)
	require.NoError(t, err)
	e, err := webhook.ConstructEvent(payload, signature, webhookSecret)
	require.NoError(t, err)
	require.Regexp(t, `^evt_3[A-Z2-7]{23}$`, e.ID)
	require.Equal(t, "event", e.Object)
	require.Equal(t, stripe.EventTypePaymentIntentSucceeded, e.Type)
	require.InDelta(t, time.Now().Unix(), e.Created, 60)
	require.False(t, e.Livemode)
	var pi stripe.PaymentIntent
	require.NoError(t, json.Unmarshal(e.Data.Raw, &pi))
	require.Equal(t, id, pi.ID)
	require.Equal(t, stripe.PaymentIntentStatusSucceeded, pi.Status)
	require.Equal(t, "order-1", pi.Metadata["order_id"])

	again, _, err := s.Event(webhookSecret, "payment_intent.succeeded", id)
	require.NoError(t, err)
	require.NotEqual(t, payload, again, "another event has another id")

	payload, signature, err = s.Event(webhookSecret, "charge.succeeded", id)
	require.NoError(t, err)
	e, err = webhook.ConstructEvent(payload, signature, webhookSecret)
	require.NoError(t, err)
	var ch stripe.Charge
	require.NoError(t, json.Unmarshal(e.Data.Raw, &ch))
	require.Equal(t, pi.LatestCharge.ID, ch.ID)
	require.Equal(t, id, ch.PaymentIntent.ID)
	require.Equal(t, "order-1", ch.Metadata["order_id"])
}

// Each event about an intent contains its client secret, as at Stripe.
func TestEvent_intentTypes(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	pi := challenge(t, newAPI(t, s.url), challengeCard)
	for _, eventType := range []stripe.EventType{
		stripe.EventTypePaymentIntentRequiresAction,
		stripe.EventTypePaymentIntentSucceeded,
		stripe.EventTypePaymentIntentPaymentFailed,
		stripe.EventTypePaymentIntentCanceled,
		stripe.EventTypePaymentIntentProcessing,
	} {
		payload, signature, err := s.Event(webhookSecret, string(eventType), pi.ID)
		require.NoError(t, err)
		e, err := webhook.ConstructEvent(payload, signature, webhookSecret)
		require.NoError(t, err)
		require.Equal(t, eventType, e.Type)
		require.Equal(t, pi.ClientSecret, e.GetObjectValue("client_secret"))
		require.Equal(t, "requires_action", e.GetObjectValue("status"))
		require.Equal(t, "use_stripe_sdk", e.GetObjectValue("next_action", "type"))
	}
}

func TestEvent_refund(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	id := s.post(refundsPath, "", "payment_intent="+s.create(visa)+"&metadata[refund_id]=r1").field("id")
	payload, signature, err := s.Event(webhookSecret, "charge.refund.updated", id)
	require.NoError(t, err)
	e, err := webhook.ConstructEvent(payload, signature, webhookSecret)
	require.NoError(t, err)
	require.Equal(t, stripe.EventTypeChargeRefundUpdated, e.Type)
	var re stripe.Refund
	require.NoError(t, json.Unmarshal(e.Data.Raw, &re))
	require.Equal(t, id, re.ID)
	require.Equal(t, stripe.RefundStatusSucceeded, re.Status)
	require.Equal(t, "r1", re.Metadata["refund_id"])
}

func TestEvent_unknownObject(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	_, _, err := s.Event(webhookSecret, "payment_intent.succeeded", "pi_nobody")
	require.EqualError(t, err, "stripetest: no payment intent or refund pi_nobody")
	id := s.create(unconfirmed)
	_, _, err = s.Event(webhookSecret, "charge.succeeded", id)
	require.EqualError(t, err, "stripetest: "+id+" has no charge")
	require.Panics(t, func() { stripetest.SignedEvent(webhookSecret, "x", func() {}, time.Now()) })
}
