package stripetest

// A card is the behaviour of a test payment method.
type card struct {
	authenticate authentication
	decline      *decline // nil: the payment succeeds
	processing   bool     // until Settle decides
	refunds      refundBehaviour
}

type authentication int

const (
	never authentication = iota
	onSession
	always
)

type refundBehaviour int

const (
	refundsAtOnce refundBehaviour = iota
	refundsPending
	refundsThenFails
)

type decline struct {
	code    string
	reason  string // decline_code
	message string
	param   string
}

const declinedMessage = "Your card was declined."

func genericDecline() *decline {
	return &decline{code: "card_declined", reason: "generic_decline", message: declinedMessage}
}

func insufficientFunds() *decline {
	return &decline{code: "card_declined", reason: "insufficient_funds", message: "Your card has insufficient funds."}
}

// ProcessingCard does not exist at Stripe. Its payments are processing until Settle.
const ProcessingCard = "pm_card_standinProcessing"

// testCards returns Stripe's test payment methods by name. Radar has its default
// settings. Disputes are not simulated.
func testCards() map[string]card {
	cards := make(map[string]card)
	add := func(c card, names ...string) {
		for _, name := range names {
			cards["pm_card_"+name] = c
		}
	}
	add(card{}, "visa", "visa_debit", "mastercard", "mastercard_debit", "mastercard_prepaid", "amex", "discover",
		"diners", "jcb", "unionpay", "us", "ca", "de", "fr", "gb", "jp", "riskLevelElevated", "cvcCheckFail",
		"avsZipFail", "createDispute", "createDisputeProductNotReceived", "createDisputeInquiry")

	for name, d := range map[string]*decline{
		"chargeDeclined":                  genericDecline(),
		"chargeDeclinedInsufficientFunds": insufficientFunds(),
		"chargeDeclinedLostCard":          {code: "card_declined", reason: "lost_card", message: declinedMessage},
		"chargeDeclinedStolenCard":        {code: "card_declined", reason: "stolen_card", message: declinedMessage},
		"chargeDeclinedExpiredCard": {
			code: "expired_card", reason: "expired_card", message: "Your card has expired.", param: "exp_month",
		},
		"chargeDeclinedIncorrectCvc": {
			code: "incorrect_cvc", reason: "incorrect_cvc", message: "Your card's security code is incorrect.", param: "cvc",
		},
		"chargeDeclinedProcessingError": {
			code: "processing_error", reason: "processing_error",
			message: "An error occurred while processing your card. Try again in a little bit.",
		},
		"chargeDeclinedVelocityLimitExceeded": {
			code: "card_declined", reason: "card_velocity_exceeded",
			message: "Your card was declined for making repeated attempts too frequently or exceeding its amount limit.",
		},
	} {
		add(card{decline: d}, name, "visa_"+name)
	}
	add(card{decline: genericDecline()}, "chargeCustomerFail")
	add(card{decline: &decline{code: "card_declined", reason: "fraudulent", message: declinedMessage}},
		"radarBlock", "riskLevelHighest")

	add(card{authenticate: always}, "authenticationRequired", "authenticationRequiredOnSetup", "threeDSecure2Required")
	add(card{authenticate: onSession}, "authenticationRequiredSetupForOffSession")
	add(card{authenticate: always, decline: insufficientFunds()}, "authenticationRequiredChargeDeclinedInsufficientFunds")

	add(card{refunds: refundsThenFails}, "refundFail")
	add(card{refunds: refundsPending}, "pendingRefund")
	cards[ProcessingCard] = card{processing: true}
	return cards
}
