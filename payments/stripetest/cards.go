package stripetest

import "fmt"

// A card is the behaviour of a test payment method.
type card struct {
	name    string
	brand   string
	last4   string
	country string
	funding string

	authenticate authentication
	decline      *decline // nil: the payment succeeds
	processing   bool     // until Settle decides
	refunds      refundBehaviour
}

// authentication is when the customer must authenticate a payment.
type authentication int

const (
	never authentication = iota
	onSession
	always
)

// refundBehaviour is what happens to a refund.
type refundBehaviour int

const (
	refundsAtOnce refundBehaviour = iota
	refundsPending
	refundsThenFails
)

// A decline is the reason why the issuer, or Stripe for it, rejects a charge.
type decline struct {
	code    string
	reason  string // decline_code
	message string
	param   string
	advice  string
	network string
	blocked bool // by Stripe, before it reached the issuer
}

const declinedMessage = "Your card was declined."

func authenticationRequired(reason string) decline {
	return decline{
		code:    "authentication_required",
		reason:  reason,
		message: "Your card was declined. This transaction requires authentication.",
	}
}

// ProcessingCard is the only payment method here that Stripe does not have. Its
// payments are processing until Settle decides.
const ProcessingCard = "pm_card_standinProcessing"

// testCards returns Stripe's test payment methods by name.
//
// Radar has its default settings: the highest risk is blocked, failed CVC and postal
// code checks are not. Disputes are not simulated: payments with those cards succeed.
func testCards() map[string]card {
	cards := make(map[string]card)
	add := func(brand, last4 string, c card, names ...string) {
		c.brand, c.last4 = brand, last4
		if c.country == "" {
			c.country = "US"
		}
		if c.funding == "" {
			c.funding = "credit"
		}
		for _, name := range names {
			c.name = name
			cards[name] = c
		}
	}

	// These succeed.
	add("visa", "4242", card{}, "pm_card_visa", "pm_card_us")
	add("visa", "5556", card{funding: "debit"}, "pm_card_visa_debit")
	add("mastercard", "4444", card{}, "pm_card_mastercard")
	add("mastercard", "8210", card{funding: "debit"}, "pm_card_mastercard_debit")
	add("mastercard", "5100", card{funding: "prepaid"}, "pm_card_mastercard_prepaid")
	add("amex", "0005", card{}, "pm_card_amex")
	add("discover", "1117", card{}, "pm_card_discover")
	add("diners", "0004", card{}, "pm_card_diners")
	add("jcb", "0505", card{}, "pm_card_jcb")
	add("unionpay", "0005", card{}, "pm_card_unionpay")
	add("visa", "0000", card{country: "CA"}, "pm_card_ca")
	add("visa", "0016", card{country: "DE"}, "pm_card_de")
	add("visa", "0003", card{country: "FR"}, "pm_card_fr")
	add("visa", "0000", card{country: "GB"}, "pm_card_gb")
	add("visa", "0003", card{country: "JP"}, "pm_card_jp")

	// These are declined. Each name exists with and without the brand.
	declines := func(last4, name string, d decline) {
		c := card{decline: &d}
		add("visa", last4, c, "pm_card_visa_"+name, "pm_card_"+name)
	}
	declines("0002", "chargeDeclined", decline{
		code: "card_declined", reason: "generic_decline", message: declinedMessage, advice: "try_again_later",
	})
	declines("9995", "chargeDeclinedInsufficientFunds", decline{
		code: "card_declined", reason: "insufficient_funds", message: "Your card has insufficient funds.",
		advice: "try_again_later", network: "51",
	})
	declines("9987", "chargeDeclinedLostCard", decline{
		code: "card_declined", reason: "lost_card", message: declinedMessage, advice: "do_not_try_again", network: "41",
	})
	declines("9979", "chargeDeclinedStolenCard", decline{
		code: "card_declined", reason: "stolen_card", message: declinedMessage, advice: "do_not_try_again", network: "43",
	})
	declines("0069", "chargeDeclinedExpiredCard", decline{
		code: "expired_card", reason: "expired_card", message: "Your card has expired.", param: "exp_month",
	})
	declines("0127", "chargeDeclinedIncorrectCvc", decline{
		code: "incorrect_cvc", reason: "incorrect_cvc", message: "Your card's security code is incorrect.", param: "cvc",
	})
	declines("0119", "chargeDeclinedProcessingError", decline{
		code: "processing_error", reason: "processing_error",
		message: "An error occurred while processing your card. Try again in a little bit.",
	})
	declines("6975", "chargeDeclinedVelocityLimitExceeded", decline{
		code: "card_declined", reason: "card_velocity_exceeded",
		message: "Your card was declined for making repeated attempts too frequently or exceeding its amount limit.",
	})

	generic := decline{code: "card_declined", reason: "generic_decline", message: declinedMessage}
	add("visa", "0341", card{decline: &generic}, "pm_card_chargeCustomerFail")
	blocked := decline{code: "card_declined", reason: "fraudulent", message: declinedMessage, blocked: true}
	add("visa", "0019", card{decline: &blocked}, "pm_card_radarBlock")
	add("visa", "4954", card{decline: &blocked}, "pm_card_riskLevelHighest")
	add("visa", "9235", card{}, "pm_card_riskLevelElevated")
	add("visa", "0101", card{}, "pm_card_cvcCheckFail")
	add("visa", "0036", card{}, "pm_card_avsZipFail")

	// These require authentication.
	insufficient := decline{code: "card_declined", reason: "insufficient_funds", message: "Your card has insufficient funds."}
	add("visa", "3184", card{authenticate: always}, "pm_card_authenticationRequired")
	add("visa", "3155", card{authenticate: always}, "pm_card_authenticationRequiredOnSetup")
	add("visa", "3220", card{authenticate: always}, "pm_card_threeDSecure2Required")
	add("visa", "0446", card{authenticate: onSession}, "pm_card_authenticationRequiredSetupForOffSession")
	add("visa", "3178", card{authenticate: always, decline: &insufficient},
		"pm_card_authenticationRequiredChargeDeclinedInsufficientFunds")

	// These succeed, and something happens later.
	add("visa", "0259", card{}, "pm_card_createDispute")
	add("visa", "2685", card{}, "pm_card_createDisputeProductNotReceived")
	add("visa", "1976", card{}, "pm_card_createDisputeInquiry")
	add("visa", "5126", card{refunds: refundsThenFails}, "pm_card_refundFail")
	add("visa", "7726", card{refunds: refundsPending}, "pm_card_pendingRefund")
	add("visa", "0000", card{processing: true}, ProcessingCard)
	return cards
}

// details returns the card as in a payment method and a charge.
func (c card) details() cardDetails {
	return cardDetails{
		Brand:       c.brand,
		Country:     c.country,
		ExpMonth:    12,
		ExpYear:     2034,
		Fingerprint: fmt.Sprintf("standin%s%s", c.brand, c.last4),
		Funding:     c.funding,
		Last4:       c.last4,
	}
}
