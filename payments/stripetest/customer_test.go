package stripetest_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"example.com/orders-api/payments/stripetest"
)

const (
	challengeCard  = "pm_card_threeDSecure2Required"
	declinedLater  = "pm_card_authenticationRequiredChargeDeclinedInsufficientFunds"
	authentication = "payment_intent_authentication_failure"
)

// challenge returns an intent that waits for its customer, as stripe-go reads it.
func challenge(t *testing.T, api *stripeAPI, card string) *stripe.PaymentIntent {
	t.Helper()
	create := createParams(t, "")
	create.PaymentMethod = stripe.String(card)
	pi, err := api.PaymentIntents.New(create)
	require.NoError(t, err)
	pi, err = api.PaymentIntents.Confirm(pi.ID, &stripe.PaymentIntentConfirmParams{
		Params: params(t, ""), UseStripeSDK: stripe.Bool(true),
	})
	require.NoError(t, err)
	require.Equal(t, stripe.PaymentIntentStatusRequiresAction, pi.Status)
	return pi
}

func TestConfirm_challenge(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	api := newAPI(t, s.url)
	pi := challenge(t, api, challengeCard)
	require.Equal(t, stripe.PaymentIntentNextActionTypeUseStripeSDK, pi.NextAction.Type)
	require.NotEmpty(t, pi.ClientSecret)
	require.NotEmpty(t, pi.PaymentMethod.ID)
	require.Nil(t, pi.LatestCharge)

	read, err := api.PaymentIntents.Get(pi.ID, &stripe.PaymentIntentParams{Params: params(t, "")})
	require.NoError(t, err)
	require.Equal(t, pi.ClientSecret, read.ClientSecret)
	require.Equal(t, stripe.PaymentIntentStatusRequiresAction, read.Status, "the customer closed the window")
	require.Empty(t, s.Charges())
}

func TestConfirm_nextAction(t *testing.T) {
	t.Parallel()
	const returnURL = "&return_url=https://example.com/paid"
	for form, want := range map[string]string{
		"":                                 "use_stripe_sdk",
		"&use_stripe_sdk=true":             "use_stripe_sdk",
		"&use_stripe_sdk=true" + returnURL: "use_stripe_sdk",
		returnURL:                          "redirect_to_url",
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			s := start(t, stripetest.Options{})
			base := "amount=2000&currency=usd&payment_method_types[0]=card&payment_method=" + challengeCard
			created := s.post(intentsPath, "", base+"&confirm=true"+form)
			require.Equal(t, want, created.field("next_action.type"), created.body)
			confirmed := s.post(intentsPath+"/"+s.create(base)+"/confirm", "", form)
			require.Equal(t, want, confirmed.field("next_action.type"), confirmed.body)
		})
	}
}

func TestCreate_useStripeSDKWithoutConfirm(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	requireError(t, s.post(intentsPath, "", unconfirmed+"&use_stripe_sdk=true"), http.StatusBadRequest, "", "confirm")
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		card    string
		approve bool
		status  stripe.PaymentIntentStatus
		code    stripe.ErrorCode
		reason  stripe.DeclineCode
	}{
		"the customer approves": {card: challengeCard, approve: true, status: stripe.PaymentIntentStatusSucceeded},
		"the customer approves and the card is declined": {
			card: declinedLater, approve: true, status: stripe.PaymentIntentStatusRequiresPaymentMethod,
			code: stripe.ErrorCodeCardDeclined, reason: stripe.DeclineCodeInsufficientFunds,
		},
		"the customer declines": {
			card: challengeCard, status: stripe.PaymentIntentStatusRequiresPaymentMethod, code: authentication,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, stripetest.Options{})
			api := newAPI(t, s.url)
			id := challenge(t, api, test.card).ID
			require.NoError(t, s.Authenticate(id, test.approve))

			pi, err := api.PaymentIntents.Get(id, &stripe.PaymentIntentParams{Params: params(t, "")})
			require.NoError(t, err)
			require.Equal(t, test.status, pi.Status)
			require.Nil(t, pi.NextAction)
			require.Equal(t, test.code == "", pi.LastPaymentError == nil)
			require.Equal(t, test.code == authentication, pi.LatestCharge == nil, "a declined card has a failed charge")
			if test.code != "" {
				require.Nil(t, pi.PaymentMethod)
				require.Equal(t, test.code, pi.LastPaymentError.Code)
				require.Equal(t, test.reason, pi.LastPaymentError.DeclineCode)
			}

			before := s.get(intentsPath + "/" + id).body
			require.ErrorContains(t, s.Authenticate(id, true), "has no challenge: its status is "+string(test.status))
			require.ErrorContains(t, s.Authenticate(id, false), "has no challenge")
			require.Equal(t, before, s.get(intentsPath+"/"+id).body, "a second answer has no effect")
			require.Equal(t, test.status == stripe.PaymentIntentStatusSucceeded, len(s.Charges()) == 1)
		})
	}
}

func TestAuthenticate_withoutChallenge(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	require.EqualError(t, s.Authenticate("pi_x", true), "stripetest: no payment intent pi_x")
	id := s.create(unconfirmed)
	require.EqualError(t, s.Authenticate(id, true), "stripetest: "+id+" has no challenge: its status is requires_confirmation")
	require.Error(t, s.Settle(challenge(t, newAPI(t, s.url), challengeCard).ID, true), "only the customer ends a challenge")
	require.Empty(t, s.Charges())
}

func TestCancel_challenge(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	id := challenge(t, newAPI(t, s.url), challengeCard).ID
	r := s.post(intentsPath+"/"+id+"/cancel", "", "")
	require.Equal(t, "canceled", r.field("status"))
	require.Empty(t, r.field("next_action.type"))
	require.ErrorContains(t, s.Authenticate(id, true), "its status is canceled")
	require.ErrorContains(t, s.ConfirmAsCustomer(id, "pm_card_visa"), "has a status of canceled")
	require.Equal(t, "canceled", s.get(intentsPath+"/"+id).field("status"))
	require.Empty(t, s.Charges())
}

// A customer who failed the challenge holds the client secret and can pay with another
// card, until the intent is cancelled.
func TestConfirmAsCustomer_afterFailedChallenge(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	api := newAPI(t, s.url)
	open, cancelled := challenge(t, api, challengeCard).ID, challenge(t, api, challengeCard).ID
	require.NoError(t, s.Authenticate(open, false))
	require.NoError(t, s.Authenticate(cancelled, false))

	require.ErrorContains(t, s.ConfirmAsCustomer(open, ""), "it's missing a payment method")
	require.ErrorContains(t, s.ConfirmAsCustomer(open, "pm_x"), "No such PaymentMethod")
	require.ErrorContains(t, s.ConfirmAsCustomer(open, "pm_card_visa_chargeDeclined"), "Your card was declined.")
	require.Empty(t, s.Charges())
	require.NoError(t, s.ConfirmAsCustomer(open, "pm_card_visa"))
	require.Len(t, s.Charges(), 1)
	require.ErrorContains(t, s.ConfirmAsCustomer(open, "pm_card_visa"), "has already succeeded")
	require.Len(t, s.Charges(), 1)

	path := intentsPath + "/" + cancelled
	r := s.post(path+"/cancel", "", "")
	require.Equal(t, "canceled", r.field("status"))
	require.Equal(t, authentication, r.field("last_payment_error.code"), "the reason survives the cancel")
	require.Equal(t, authentication, s.get(path).field("last_payment_error.code"))
	require.ErrorContains(t, s.ConfirmAsCustomer(cancelled, "pm_card_visa"), "has a status of canceled")
	require.Len(t, s.Charges(), 1)
}

func TestConfirmAsCustomer_challengedAgain(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	require.EqualError(t, s.ConfirmAsCustomer("pi_x", ""), "stripetest: no payment intent pi_x")
	id := challenge(t, newAPI(t, s.url), challengeCard).ID
	require.NoError(t, s.Authenticate(id, false))
	require.NoError(t, s.ConfirmAsCustomer(id, challengeCard))
	require.Equal(t, "requires_action", s.get(intentsPath+"/"+id).field("status"))
	require.NoError(t, s.Authenticate(id, true))
	require.Len(t, s.Charges(), 1)
}

// The customer approves while a cancel is being processed. Exactly one has an effect.
func TestAuthenticate_concurrentCancel(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	api := newAPI(t, s.url)
	charges := 0
	for range 50 {
		id := challenge(t, api, challengeCard).ID
		cancel := s.background(intentsPath+"/"+id+"/cancel", "", "")
		approved := s.Authenticate(id, true) == nil
		r := <-cancel
		require.NoError(t, r.err)
		switch status := s.get(intentsPath + "/" + id).field("status"); {
		case approved:
			charges++
			require.Equal(t, "succeeded", status)
			requireUnexpectedState(t, r, "succeeded")
		default:
			require.Equal(t, http.StatusOK, r.status, r.body)
			require.Equal(t, "canceled", status)
		}
	}
	require.Len(t, s.Charges(), charges)
}

func TestAuthenticate_locked(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	id := challenge(t, newAPI(t, s.url), challengeCard).ID
	hold := s.Inject(stripetest.Rule{Fault: stripetest.HoldRunning})
	cancel := s.background(intentsPath+"/"+id+"/cancel", "", "")
	reached(t, hold)
	require.EqualError(t, s.Authenticate(id, true), "stripetest: "+id+" is locked by a request")
	require.EqualError(t, s.ConfirmAsCustomer(id, "pm_card_visa"), "stripetest: "+id+" is locked by a request")
	hold.Release()
	require.Equal(t, "canceled", (<-cancel).field("status"))
	require.Empty(t, s.Charges())
}

func TestCustomer_http(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	api := newAPI(t, s.url)
	pi := challenge(t, api, challengeCard)
	act := func(act string, form url.Values) reply {
		return s.send(http.MethodPost, "/customer/"+pi.ID+"/"+act, form.Encode(), http.Header{
			"Authorization": {"none"}, "Content-Type": {"application/x-www-form-urlencoded"},
		})
	}
	secret := url.Values{"client_secret": {pi.ClientSecret}}
	for _, wrong := range []url.Values{nil, {"client_secret": {pi.ID}}, {"client_secret": {challenge(t, api, challengeCard).ClientSecret}}} {
		require.Equal(t, http.StatusNotFound, act("approve", wrong).status)
	}
	require.Equal(t, http.StatusConflict, act("abandon", secret).status)
	require.Equal(t, "requires_action", s.get(intentsPath+"/"+pi.ID).field("status"))

	require.Equal(t, http.StatusNoContent, act("decline", secret).status)
	require.Equal(t, http.StatusConflict, act("decline", secret).status)
	require.Equal(t, authentication, s.get(intentsPath+"/"+pi.ID).field("last_payment_error.code"))

	another := url.Values{"client_secret": {pi.ClientSecret}, "payment_method": {challengeCard}}
	require.Equal(t, http.StatusNoContent, act("confirm", another).status)
	require.Equal(t, http.StatusNoContent, act("approve", secret).status)
	refused := act("approve", secret)
	require.Equal(t, http.StatusConflict, refused.status)
	require.NotContains(t, refused.body, "_secret_")
	require.Len(t, s.Charges(), 1)
}
