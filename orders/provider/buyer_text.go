package provider

// buyerText is what a customer may read about a code or decline code, or "" if only a general text is
// allowed. For example, only the card's issuer may tell a cardholder that the card was reported stolen
// (https://docs.stripe.com/declines/codes, July 2026).
func buyerText(code string) string {
	switch code {
	case "insufficient_funds", "withdrawal_count_limit_exceeded":
		return "The card has insufficient funds. Please use another card."
	case "card_velocity_exceeded":
		return "The card has reached its limit. Please use another card, or ask your bank."
	case "expired_card":
		return "The card has expired. Please use another card."
	case "incorrect_cvc", "invalid_cvc":
		return "The card's security code is not correct. Please enter the card again."
	case "incorrect_number", "invalid_number":
		return "The card's number is not correct. Please enter the card again."
	case "invalid_expiry_month", "invalid_expiry_year":
		return "The card's expiry date is not correct. Please enter the card again."
	case "incorrect_address", "incorrect_zip":
		return "The address does not match the card. Please enter the card again."
	case "card_not_supported", "currency_not_supported", "invalid_amount":
		return "The card does not allow this payment. Please use another card, or ask your bank."
	case "approve_with_id", "issuer_not_available", "processing_error", "reenter_transaction", "try_again_later":
		return "The card could not be processed. Please try again later, or use another card."
	case "duplicate_transaction":
		return "The bank has just received an equal payment. Please check your payments before you try again."
	case "authentication_required", "authentication_not_handled":
		return "The bank requires your approval. Please try again, and approve the payment."
	case "payment_intent_authentication_failure":
		return "The payment was not approved. Please try again, or use another card."
	case "resource_missing", "payment_method_unexpected_state", "payment_method_invalid_parameter":
		return "The payment details cannot be used. Please enter them again."
	case "payment_intent_incompatible_payment_method", "payment_method_currency_mismatch", "payment_method_unsupported_type":
		return "This way to pay cannot be used here. Please use another one."
	case "amount_too_small", "amount_too_large":
		return "This amount cannot be charged."
	case "charge_already_refunded":
		return "The payment is already refunded."
	case "charge_disputed", "refund_disputed_payment":
		return "The payment is disputed, so it cannot be refunded."
	case "charge_not_refundable":
		return "The payment cannot be refunded."
	default:
		return ""
	}
}
