package stripetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79/webhook"

	"example.com/orders-api/payments/stripetest"
)

func TestEvent_stripeGo(t *testing.T) {
	t.Parallel()
	const secret = "whsec_fake"
	s := start(t, stripetest.Options{})
	asking := s.challenge(challengeCard)
	paid := s.post(intentsPath, "", visa)
	refund := s.post(refundsPath, "", "payment_intent="+paid.field("id"))
	for _, test := range []struct{ eventType, id, object, status string }{
		{"payment_intent.requires_action", asking.field("id"), asking.field("id"), "requires_action"},
		{"charge.succeeded", paid.field("id"), paid.field("latest_charge"), "succeeded"},
		{"charge.refund.updated", refund.field("id"), refund.field("id"), "succeeded"},
	} {
		payload, signature, err := s.Event(secret, test.eventType, test.id)
		require.NoError(t, err)
		e, err := webhook.ConstructEvent(payload, signature, secret)
		require.NoError(t, err)
		require.Regexp(t, `^evt_3[A-Z2-7]{23}$`, e.ID)
		require.Equal(t, test.eventType, string(e.Type))
		require.Equal(t, test.object, e.GetObjectValue("id"))
		require.Equal(t, test.status, e.GetObjectValue("status"))
	}

	_, _, err := s.Event(secret, "payment_intent.succeeded", "pi_x")
	require.EqualError(t, err, "stripetest: no payment intent or refund pi_x")
	_, _, err = s.Event(secret, "charge.succeeded", asking.field("id"))
	require.EqualError(t, err, "stripetest: "+asking.field("id")+" has no charge")
}
