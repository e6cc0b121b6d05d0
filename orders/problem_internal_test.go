package orders

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// A customer reads the service's own text, an operator Stripe's.
func TestDeclined_texts(t *testing.T) {
	t.Parallel()
	general := Declined(payments.Decline{}).Detail
	for _, code := range append(stripetest.DeclineCodes(), "unheard_of", "") {
		p := Declined(payments.Decline{Code: "card_declined", DeclineCode: code, Message: "Stripe's text."})
		require.Equal(t, []string{code, "Stripe's text."}, []string{p.DeclineCode, p.ProviderMessage})
		require.NotRegexp(t, `(?i)stolen|lost|fraud|block|suspic|risk|stripe|test`, p.Detail, code)
		require.NotContains(t, p.Detail, "_")
		switch code {
		case "fraudulent", "lost_card", "lost_or_stolen_card", "merchant_blacklist", "partner_high_risk_customer", "pickup_card",
			"restricted_card", "security_violation", "stolen_card", "generic_decline":
			require.Equal(t, general, p.Detail, code)
		case "insufficient_funds":
			require.Equal(t, "The card has insufficient funds. Please use another card.", p.Detail)
		case "authentication_required", "approve_with_id", "issuer_not_available", "reenter_transaction", "try_again_later":
			require.Contains(t, p.Detail, "Please try again", code)
			require.Contains(t, p.Detail, "ask your bank", code)
		}
	}
	require.Equal(t, "The card has expired. Please use another card.", Declined(payments.Decline{Code: "expired_card"}).Detail, "without a decline code")
}

// No other key helps after the charge was refunded. After a dispute is won, one does.
func TestRefused_retry(t *testing.T) {
	t.Parallel()
	stated := regexp.MustCompile("(?s)as for `payment-refused` with the code.*?\\.").FindString(string(ordersapi.Spec))
	for code, retry := range map[string]string{
		"charge_already_refunded": "never", "charge_not_refundable": "never", "charge_disputed": "new-key", "refund_disputed_payment": "new-key",
		"resource_missing": "new-key", "amount_too_small": "new-key", "": "new-key",
	} {
		p := RefusedBy(&payments.Error{Code: code, Message: "Charge ch_1 cannot be refunded."})
		require.Equal(t, []string{retry, "Charge ch_1 cannot be refunded."}, []string{p.Retry, p.ProviderMessage}, code)
		require.NotContains(t, p.Detail, "ch_1")
		require.Equal(t, retry == "never", strings.Contains(stated, "`"+code+"`"), "the contract has the codes: %s", stated)
	}
}
