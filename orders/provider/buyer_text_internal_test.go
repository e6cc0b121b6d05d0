package provider

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/payments"
)

// A customer reads the service's own text, an operator Stripe's.
func TestDeclined_texts(t *testing.T) {
	t.Parallel()
	// Every documented decline code.
	codes := strings.Fields(`approve_with_id authentication_not_handled authentication_required call_issuer card_not_supported
		card_velocity_exceeded currency_not_supported do_not_honor do_not_try_again duplicate_transaction expired_card fraudulent generic_decline
		incorrect_address incorrect_cvc incorrect_number incorrect_pin incorrect_zip insufficient_funds invalid_account invalid_amount invalid_cvc
		invalid_expiry_month invalid_expiry_year invalid_number invalid_pin issuer_not_available lost_card merchant_blacklist
		mobile_device_authentication_required new_account_information_available no_action_taken not_permitted offline_pin_required
		online_or_offline_pin_required pickup_card pin_try_exceeded processing_error reenter_transaction restricted_card
		revocation_of_all_authorizations revocation_of_authorization security_violation service_not_allowed stolen_card stop_payment_order
		test_mode_live_card testmode_decline transaction_not_allowed try_again_later withdrawal_count_limit_exceeded`)
	general := Declined(payments.Decline{}).Detail
	for _, code := range append(codes, "unheard_of", "") {
		p := Declined(payments.Decline{Code: "card_declined", DeclineCode: code, Message: "Stripe's text."})
		require.Equal(t, []string{code, "Stripe's text."}, []string{p.DeclineCode, p.ProviderMessage})
		require.NotRegexp(t, `(?i)stolen|lost|fraud|block|suspic|stripe|test`, p.Detail, code)
		require.NotContains(t, p.Detail, "_")
		switch code {
		case "fraudulent", "lost_card", "merchant_blacklist", "pickup_card", "restricted_card", "security_violation", "stolen_card", "generic_decline":
			require.Equal(t, general, p.Detail, code)
		case "insufficient_funds":
			require.Equal(t, "The card has insufficient funds. Please use another card.", p.Detail)
		}
	}
	require.Equal(t, "The card has expired. Please use another card.", Declined(payments.Decline{Code: "expired_card"}).Detail, "without a decline code")
}

// No other key makes a disputed or refunded charge refundable.
func TestRefused_retry(t *testing.T) {
	t.Parallel()
	stated := regexp.MustCompile("(?s)as for `payment-refused` with the code.*?\\.").FindString(string(ordersapi.Spec))
	for code, retry := range map[string]string{
		"charge_already_refunded": "never", "charge_disputed": "never", "charge_not_refundable": "never", "refund_disputed_payment": "never",
		"resource_missing": "new-key", "amount_too_small": "new-key", "": "new-key",
	} {
		p := RefusedBy(&payments.Error{Code: code, Message: "Charge ch_1 cannot be refunded."})
		require.Equal(t, []string{retry, "Charge ch_1 cannot be refunded."}, []string{p.Retry, p.ProviderMessage}, code)
		require.NotContains(t, p.Detail, "ch_1")
		require.Equal(t, retry == "never", strings.Contains(stated, "`"+code+"`"), "the contract has the codes: %s", stated)
	}
}
