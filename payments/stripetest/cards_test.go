package stripetest_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func TestConfirm_testPaymentMethods(t *testing.T) {
	t.Parallel()
	const (
		declined = "Your card was declined."
		funds    = "Your card has insufficient funds."
		action   = "Your card was declined. This transaction requires authentication."
	)
	// The outcome of a confirm: a status, or a decline. An empty onSession equals
	// offSession.
	type outcome struct{ status, code, reason, message, param string }
	pays := outcome{status: "succeeded"}
	waits := outcome{status: "requires_action"}
	authenticate := outcome{code: "authentication_required", reason: "authentication_required", message: action}
	tests := map[string]struct{ offSession, onSession outcome }{
		"pm_card_visa":                            {offSession: pays},
		"pm_card_visa_debit":                      {offSession: pays},
		"pm_card_mastercard":                      {offSession: pays},
		"pm_card_mastercard_debit":                {offSession: pays},
		"pm_card_mastercard_prepaid":              {offSession: pays},
		"pm_card_amex":                            {offSession: pays},
		"pm_card_discover":                        {offSession: pays},
		"pm_card_diners":                          {offSession: pays},
		"pm_card_jcb":                             {offSession: pays},
		"pm_card_unionpay":                        {offSession: pays},
		"pm_card_us":                              {offSession: pays},
		"pm_card_gb":                              {offSession: pays},
		"pm_card_visa_chargeDeclined":             {offSession: outcome{code: "card_declined", reason: "generic_decline", message: declined}},
		"pm_card_chargeDeclined":                  {offSession: outcome{code: "card_declined", reason: "generic_decline", message: declined}},
		"pm_card_chargeDeclinedInsufficientFunds": {offSession: outcome{code: "card_declined", reason: "insufficient_funds", message: funds}},
		"pm_card_visa_chargeDeclinedInsufficientFunds": {
			offSession: outcome{code: "card_declined", reason: "insufficient_funds", message: funds},
		},
		"pm_card_visa_chargeDeclinedLostCard":   {offSession: outcome{code: "card_declined", reason: "lost_card", message: declined}},
		"pm_card_visa_chargeDeclinedStolenCard": {offSession: outcome{code: "card_declined", reason: "stolen_card", message: declined}},
		"pm_card_chargeDeclinedExpiredCard": {
			offSession: outcome{code: "expired_card", reason: "expired_card", message: "Your card has expired.", param: "exp_month"},
		},
		"pm_card_chargeDeclinedIncorrectCvc": {offSession: outcome{
			code: "incorrect_cvc", reason: "incorrect_cvc", message: "Your card's security code is incorrect.", param: "cvc",
		}},
		"pm_card_chargeDeclinedProcessingError": {offSession: outcome{
			code: "processing_error", reason: "processing_error",
			message: "An error occurred while processing your card. Try again in a little bit.",
		}},
		"pm_card_visa_chargeDeclinedVelocityLimitExceeded": {offSession: outcome{
			code: "card_declined", reason: "card_velocity_exceeded",
			message: "Your card was declined for making repeated attempts too frequently or exceeding its amount limit.",
		}},
		"pm_card_radarBlock":                                            {offSession: outcome{code: "card_declined", reason: "fraudulent", message: declined}},
		"pm_card_chargeCustomerFail":                                    {offSession: outcome{code: "card_declined", reason: "generic_decline", message: declined}},
		"pm_card_authenticationRequired":                                {offSession: authenticate, onSession: waits},
		"pm_card_authenticationRequiredOnSetup":                         {offSession: authenticate, onSession: waits},
		"pm_card_authenticationRequiredSetupForOffSession":              {offSession: pays, onSession: waits},
		"pm_card_authenticationRequiredChargeDeclinedInsufficientFunds": {offSession: authenticate, onSession: waits},
		"pm_card_threeDSecure2Required":                                 {offSession: authenticate, onSession: waits},
		"pm_card_riskLevelHighest":                                      {offSession: outcome{code: "card_declined", reason: "fraudulent", message: declined}},
		"pm_card_riskLevelElevated":                                     {offSession: pays},
		"pm_card_cvcCheckFail":                                          {offSession: pays},
		"pm_card_avsZipFail":                                            {offSession: pays},
		"pm_card_createDispute":                                         {offSession: pays},
		"pm_card_createDisputeProductNotReceived":                       {offSession: pays},
		"pm_card_createDisputeInquiry":                                  {offSession: pays},
		"pm_card_refundFail":                                            {offSession: pays},
		"pm_card_pendingRefund":                                         {offSession: pays},
		stripetest.ProcessingCard:                                       {offSession: outcome{status: "processing"}},
	}
	for name, test := range tests {
		if test.onSession == (outcome{}) {
			test.onSession = test.offSession
		}
		for session, want := range map[string]outcome{"true": test.offSession, "false": test.onSession} {
			t.Run(name+", off_session="+session, func(t *testing.T) {
				t.Parallel()
				s := start(t, stripetest.Options{})
				form := url.Values{
					"amount": {"2000"}, "currency": {"usd"}, "payment_method": {name}, "confirm": {"true"},
					"off_session": {session}, "use_stripe_sdk": {"true"},
					"payment_method_types[0]": {"card"}, "expand[0]": {"latest_charge"},
				}
				r := s.post(intentsPath, "k", form.Encode())
				require.NoError(t, r.err)
				if want.status != "" {
					require.Equal(t, http.StatusOK, r.status, r.body)
					require.Equal(t, want.status, r.field("status"))
					require.Equal(t, want.status == "succeeded", len(s.Charges()) == 1)
					require.Equal(t, want.status == "succeeded", r.field("latest_charge.paid") == "true")
					require.Equal(t, want.status == "requires_action", r.field("next_action.type") == "use_stripe_sdk")
					require.Equal(t, want.status == "succeeded", r.field("latest_charge") != "")
					require.NotEmpty(t, r.field("client_secret"))
					return
				}
				requireDecline(t, r, want.code, want.reason, want.param)
				require.Equal(t, want.message, r.field("error.message"))
				require.NotEmpty(t, r.field("error.charge"))
				require.Equal(t, r.field("error.charge"), r.field("error.payment_intent.latest_charge"))
				require.Empty(t, s.Charges())
			})
		}
	}
}

// requireDecline checks an intent's decline.
func requireDecline(t *testing.T, r reply, code, reason, param string) {
	t.Helper()
	requireError(t, r, http.StatusPaymentRequired, code, param)
	require.Equal(t, "card_error", r.field("error.type"))
	require.Equal(t, reason, r.field("error.decline_code"))
	require.Equal(t, "payment_method", r.field("error.payment_method.object"))
	require.Equal(t, "requires_payment_method", r.field("error.payment_intent.status"))
	require.Empty(t, r.field("error.payment_intent.payment_method"))
	require.Equal(t, code, r.field("error.payment_intent.last_payment_error.code"))
	require.Equal(t, reason, r.field("error.payment_intent.last_payment_error.decline_code"))
}

func TestConfirm_declineDetails(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ advice, network, outcome string }{
		"pm_card_visa_chargeDeclined":                  {advice: "try_again_later", outcome: "issuer_declined"},
		"pm_card_visa_chargeDeclinedInsufficientFunds": {advice: "try_again_later", network: "51", outcome: "issuer_declined"},
		"pm_card_visa_chargeDeclinedLostCard":          {advice: "do_not_try_again", network: "41", outcome: "issuer_declined"},
		"pm_card_visa_chargeDeclinedStolenCard":        {advice: "do_not_try_again", network: "43", outcome: "issuer_declined"},
		"pm_card_radarBlock":                           {outcome: "blocked"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, stripetest.Options{})
			id := s.create("amount=2000&currency=usd&payment_method_types[0]=card&payment_method=" + name)
			r := s.post(intentsPath+"/"+id+"/confirm", "", "")
			require.Equal(t, test.advice, r.field("error.advice_code"))
			require.Equal(t, test.network, r.field("error.network_decline_code"))
			charge := s.get("/v1/charges/" + r.field("error.charge"))
			require.Equal(t, "failed", charge.field("status"))
			require.Equal(t, test.outcome, charge.field("outcome.type"))
		})
	}
}

func TestConfirm_errorOnRequiresAction(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	id := s.create("amount=2000&currency=usd&payment_method_types[0]=card&payment_method=pm_card_authenticationRequired")
	r := s.post(intentsPath+"/"+id+"/confirm", "", "error_on_requires_action=true")
	requireDecline(t, r, "authentication_required", "authentication_not_handled", "")
	require.Empty(t, r.field("error.charge"), "the card was not charged")
}

func TestPaymentMethod_reuse(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	const form = "amount=2000&currency=usd&payment_method_types[0]=card&confirm=true&payment_method="
	first, second := s.post(intentsPath, "", form+"pm_card_visa"), s.post(intentsPath, "", form+"pm_card_visa")
	require.Equal(t, http.StatusOK, second.status)
	require.NotEqual(t, first.field("payment_method"), second.field("payment_method"), "a test name is a new one each time")

	r := s.post(intentsPath, "", form+first.field("payment_method"))
	requireError(t, r, http.StatusBadRequest, "", "")
	require.Contains(t, r.field("error.message"), "previously used with a PaymentIntent without Customer attachment")
	require.Equal(t, "false", r.header.Get("Stripe-Should-Retry"))
}
