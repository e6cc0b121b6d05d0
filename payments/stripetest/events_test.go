package stripetest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79/webhook"

	"example.com/orders-api/payments/stripetest"
)

const webhookSecret = "whsec_standin"

func TestEvent_stripeGo(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	intent := s.challenge(challengeCard)
	paid := s.post(intentsPath, "", visa)
	refund := s.post(refundsPath, "", "payment_intent="+paid.field("id")+"&metadata[refund_id]=r1")
	seen := map[string]bool{}
	for _, test := range []struct {
		eventType, id string
		want          map[string]string
	}{
		{"payment_intent.requires_action", intent.field("id"), map[string]string{
			"id": intent.field("id"), "status": "requires_action", "client_secret": intent.field("client_secret"),
		}},
		{"charge.succeeded", paid.field("id"), map[string]string{
			"id": paid.field("latest_charge"), "payment_intent": paid.field("id"), "status": "succeeded",
		}},
		{"charge.refund.updated", refund.field("id"), map[string]string{"id": refund.field("id"), "status": "succeeded"}},
	} {
		payload, signature, err := s.Event(webhookSecret, test.eventType, test.id)
		require.NoError(t, err)
		e, err := webhook.ConstructEvent(payload, signature, webhookSecret)
		require.NoError(t, err)
		require.Regexp(t, `^evt_3[A-Z2-7]{23}$`, e.ID)
		require.False(t, seen[e.ID], "each event has another id")
		seen[e.ID] = true
		require.Equal(t, test.eventType, string(e.Type))
		require.InDelta(t, time.Now().Unix(), e.Created, 60)
		for name, value := range test.want {
			require.Equal(t, value, e.GetObjectValue(name), test.eventType)
		}
	}
}

func TestEvent_unknownObject(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	_, _, err := s.Event(webhookSecret, "payment_intent.succeeded", "pi_x")
	require.EqualError(t, err, "stripetest: no payment intent or refund pi_x")
	id := s.create(unconfirmed)
	_, _, err = s.Event(webhookSecret, "charge.succeeded", id)
	require.EqualError(t, err, "stripetest: "+id+" has no charge")
	require.Panics(t, func() { stripetest.SignedEvent(webhookSecret, "x", func() {}, time.Now()) })
}
