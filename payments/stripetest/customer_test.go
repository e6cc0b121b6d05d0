package stripetest_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

const (
	challengeCard        = "pm_card_threeDSecure2Required"
	authenticationFailed = "payment_intent_authentication_failure"
)

func (s *fake) challenge(card string) reply {
	s.t.Helper()
	r := s.post(intentsPath, "", newCard+card+"&use_stripe_sdk=true")
	require.Equal(s.t, "requires_action", r.field("status"), r.body)
	return r
}

func (s *fake) read(id string) reply { return s.get(intentsPath + "/" + id) }

func TestAuthenticate_http(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	act := func(pi reply, act, secret string) reply {
		return s.send(http.MethodPost, "/customer/"+pi.field("id")+"/"+act, url.Values{"client_secret": {secret}}.Encode(),
			http.Header{"Authorization": {"none"}, "Content-Type": {"application/x-www-form-urlencoded"}})
	}
	approved, declined := s.challenge(challengeCard), s.challenge(challengeCard)
	secret := approved.field("client_secret")
	for _, wrong := range []string{"", approved.field("id"), declined.field("client_secret")} {
		require.Equal(t, http.StatusNotFound, act(approved, "approve", wrong).status)
	}
	require.Equal(t, "requires_action", s.read(approved.field("id")).field("status"))

	require.Equal(t, http.StatusNoContent, act(declined, "decline", declined.field("client_secret")).status)
	require.Equal(t, authenticationFailed, s.read(declined.field("id")).field("last_payment_error.code"))
	require.Equal(t, http.StatusNoContent, act(approved, "approve", secret).status)
	refused := act(approved, "approve", secret)
	require.Equal(t, http.StatusConflict, refused.status)
	require.NotContains(t, refused.body, "_secret_")
	require.Len(t, s.Charges(), 1)
}
