package orders_test

import "example.com/orders-api/payments/stripetest"

const challengeCard = "pm_card_threeDSecure2Required"

var challengeCards = []string{
	challengeCard,
	"pm_card_authenticationRequired",
	"pm_card_authenticationRequiredOnSetup",
	"pm_card_authenticationRequiredChargeDeclinedInsufficientFunds",
}

func actionOutcomes() scenarios {
	const notApproved = "402 payment_intent_authentication_failure"
	return scenarios{
		"approved": {payWith(challengeCard), create("202 action required"), retry("202 action required"), approve, retry("201")},
		"approved, and then declined": {
			payWith("pm_card_authenticationRequiredChargeDeclinedInsufficientFunds"), create("202 action required"),
			approve, retry("402 card_declined insufficient_funds"),
		},
		"not approved":                        {payWith(challengeCard), create("202 action required"), failChallenge, retry(notApproved)},
		"the response of the confirm is lost": {payWith(challengeCard), loseResponse(confirm), create("202 action required"), approve, retry("201")},
		"approved while the provider does not respond to us": {
			payWith(challengeCard), create("202 action required"),
			approve, makeUnavailable(getIntent), retry("503 outcome unknown, 2s"),
			retry("201"),
		},
		"not approved, and the response of the cancel is lost": {
			payWith(challengeCard), create("202 action required"),
			failChallenge, loseResponse(cancel), retry("503 outcome unknown, 1s"),
			retry(notApproved),
		},
		"paid with another card before our cancel arrives": {
			payWith(challengeCard), create("202 action required"),
			failChallenge, before(cancel, payWithOtherCard), retry("201"),
		},
		"another program replaces the card, and our confirm declines it": {
			payWith(challengeCard), create("202 action required"),
			failChallenge, fault(stripetest.ErrorBefore, cancel), retry("503 outcome unknown, 30s"),
			replaceCard(declinedCard), retry("402 card_declined generic_decline"),
		},
		"another card is tried after our cancel": {
			payWith(challengeCard), create("202 action required"),
			failChallenge, after(cancel, customerCannotPay), retry(notApproved),
		},
	}
}
