package stripetest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func outcome(r reply) string {
	if r.status == http.StatusOK {
		return r.field("status")
	}
	return strings.TrimSpace(r.field("error.code") + " " + r.field("error.decline_code") + " " + r.field("error.param"))
}

func TestConfirm_testPaymentMethods(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	for cards, want := range map[string]struct{ offSession, onSession string }{
		"visa us refundFail pendingRefund":   {"succeeded", "succeeded"},
		"fakeProcessing":                     {"processing", "processing"},
		"fakeDeclineLimit":                   {"card_decline_rate_limit_exceeded", "card_decline_rate_limit_exceeded"},
		"chargeDeclined visa_chargeDeclined": {"card_declined generic_decline", "card_declined generic_decline"},
		"visa_chargeDeclinedInsufficientFunds chargeDeclinedInsufficientFunds": {"card_declined insufficient_funds", "card_declined insufficient_funds"},
		"radarBlock":                 {"card_declined fraudulent", "card_declined fraudulent"},
		"chargeDeclinedIncorrectCvc": {"incorrect_cvc incorrect_cvc cvc", "incorrect_cvc incorrect_cvc cvc"},
		"authenticationRequired authenticationRequiredOnSetup threeDSecure2Required": {"authentication_required authentication_required", "requires_action"},
		"authenticationRequiredChargeDeclinedInsufficientFunds":                      {"authentication_required authentication_required", "requires_action"},
		"authenticationRequiredSetupForOffSession":                                   {"succeeded", "requires_action"},
	} {
		for card := range strings.FieldsSeq(cards) {
			for session, want := range map[string]string{"true": want.offSession, "false": want.onSession} {
				before := len(s.Charges())
				r := s.post(intentsPath, "", newCard+"pm_card_"+card+"&off_session="+session)
				require.NoError(t, r.err)
				require.Equal(t, want, outcome(r), "%s, off_session=%s", card, session)
				require.Equal(t, want == "succeeded", len(s.Charges()) == before+1, card)
				require.Equal(t, want == "requires_action", r.field("next_action.type") == "use_stripe_sdk")
				require.Equal(t, r.field("error.charge"), r.field("error.payment_intent.latest_charge"))
			}
		}
	}
}
