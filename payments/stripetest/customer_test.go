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

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card    string
		approve bool
		status  string
		code    string
		charged bool // or declined by the card's bank
	}{
		"approved": {card: challengeCard, approve: true, status: "succeeded", charged: true},
		"approved, card declined": {
			card: "pm_card_authenticationRequiredChargeDeclinedInsufficientFunds", approve: true,
			status: "requires_payment_method", code: "card_declined", charged: true,
		},
		"declined": {card: challengeCard, status: "requires_payment_method", code: authenticationFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, stripetest.Options{})
			id := s.challenge(test.card).field("id")
			require.Error(t, s.Settle(id, true), "only the customer ends a challenge")
			require.Empty(t, s.Charges())
			require.NoError(t, s.Authenticate(id, test.approve))

			r := s.read(id)
			require.Equal(t, test.status, r.field("status"))
			require.Equal(t, test.code, r.field("last_payment_error.code"))
			require.Empty(t, r.field("next_action.type"))
			require.Equal(t, test.charged, r.field("latest_charge") != "")
			require.Equal(t, test.status == "succeeded", r.field("payment_method") != "")

			require.ErrorContains(t, s.Authenticate(id, true), "has no challenge: its status is "+test.status)
			require.Equal(t, r.body, s.read(id).body, "a second call has no effect")
			require.Equal(t, test.status == "succeeded", len(s.Charges()) == 1)
		})
	}
}

func TestConfirmAsCustomer_afterFailedChallenge(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	require.EqualError(t, s.ConfirmAsCustomer("pi_x", ""), "stripetest: no payment intent pi_x")
	open, cancelled := s.challenge(challengeCard).field("id"), s.challenge(challengeCard).field("id")
	require.NoError(t, s.Authenticate(open, false))
	require.NoError(t, s.Authenticate(cancelled, false))

	require.ErrorContains(t, s.ConfirmAsCustomer(open, ""), "status of requires_payment_method")
	require.ErrorContains(t, s.ConfirmAsCustomer(open, "pm_x"), "No such PaymentMethod")
	require.ErrorContains(t, s.ConfirmAsCustomer(open, "pm_card_visa_chargeDeclined"), "Your card was declined.")
	require.NoError(t, s.ConfirmAsCustomer(open, challengeCard))
	require.Equal(t, "requires_action", s.read(open).field("status"))
	require.Empty(t, s.Charges())
	require.NoError(t, s.ConfirmAsCustomer(open, "pm_card_visa"))
	require.ErrorContains(t, s.ConfirmAsCustomer(open, "pm_card_visa"), "status of succeeded")
	require.Len(t, s.Charges(), 1)

	r := s.post(intentsPath+"/"+cancelled+"/cancel", "", "")
	require.Equal(t, "canceled", r.field("status"))
	require.Equal(t, authenticationFailed, r.field("last_payment_error.code"), "the reason remains")
	require.ErrorContains(t, s.ConfirmAsCustomer(cancelled, "pm_card_visa"), "status of canceled")
	require.Len(t, s.Charges(), 1)
}

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
