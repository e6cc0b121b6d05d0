package orders_test

import (
	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// challengeCard requires that the customer approves each payment, and then succeeds.
const challengeCard = "pm_card_threeDSecure2Required"

// authenticatedCards require that the customer approves each payment.
var authenticatedCards = []string{
	challengeCard,
	"pm_card_authenticationRequired",
	"pm_card_authenticationRequiredOnSetup",
	"pm_card_authenticationRequiredChargeDeclinedInsufficientFunds",
}

// payAsCustomer makes the customer, who holds the client secret, pay with another card.
func payAsCustomer(f *fixture) {
	require.NoError(f.t, f.stripe.ConfirmAsCustomer(*f.getOrder().PaymentIntentID, visa))
}

// customerFails checks that a customer who holds the client secret cannot pay any more.
func customerFails(f *fixture) {
	id := *f.getOrder().PaymentIntentID
	require.Error(f.t, f.stripe.Authenticate(id, true))
	require.Error(f.t, f.stripe.ConfirmAsCustomer(id, visa))
}

// actionOutcomes are about a payment that the present customer must approve.
func actionOutcomes() []outcome {
	const begin = "create 200, confirm 200, "
	var rows []outcome
	for _, card := range authenticatedCards {
		approved, calls := "201", begin+"get 200 ×2"
		if card == "pm_card_authenticationRequiredChargeDeclinedInsufficientFunds" {
			approved, calls = "402 card_declined insufficient_funds", begin+"get 200 ×2, cancel 200"
		}
		rows = append(rows, outcome{
			name:  card + ", approved",
			card:  card,
			tries: []try{{want: "action required"}, {want: "action required"}, {before: authenticate(true), want: approved}},
			calls: calls,
		}, outcome{
			name:  card + ", not approved",
			card:  card,
			tries: []try{{want: "action required"}, {before: authenticate(false), want: "402 payment_intent_authentication_failure"}},
			calls: begin + "get 200, cancel 200",
		})
	}
	return append(rows, []outcome{
		{
			name: "the response of the confirm is lost",
			card: challengeCard,
			tries: []try{
				{faults: always(stripetest.CloseAfter, confirmEndpoint), want: "action required"},
				{before: authenticate(true), want: "201"},
			},
			calls: "create 200, confirm 0 ×3, get 200 ×2",
		},
		{
			name: "approved while the provider does not respond to us",
			card: challengeCard,
			tries: []try{
				{want: "action required"},
				{before: authenticate(true), faults: always(stripetest.Unavailable, getEndpoint), want: "unknown 2s"},
				{want: "201"},
			},
			calls: begin + "get 503 ×3, get 200",
		},
		{
			name: "not approved, and the response of the cancel is lost",
			card: challengeCard,
			tries: []try{
				{want: "action required"},
				{before: authenticate(false), faults: always(stripetest.CloseAfter, cancelEndpoint), want: "unknown 1s"},
				{want: "402 payment_intent_authentication_failure"},
			},
			calls: begin + "get 200, cancel 0 ×3, get 200",
		},
		{
			name: "approved with another card before our cancel arrives",
			card: challengeCard,
			tries: []try{
				{want: "action required"},
				{before: authenticate(false), intercept: beforeCall("cancel", payAsCustomer), want: "201"},
			},
			calls: begin + "get 200, cancel 400, get 200",
		},
		{
			name: "not approved, and another card is tried after our cancel",
			card: challengeCard,
			tries: []try{
				{want: "action required"},
				{before: authenticate(false), intercept: afterCall("cancel", customerFails), want: "402 payment_intent_authentication_failure"},
			},
			calls: begin + "get 200, cancel 200",
		},
		{
			name: "approved twice",
			card: challengeCard,
			tries: []try{
				{want: "action required"},
				{before: func(f *fixture) {
					authenticate(true)(f)
					customerFails(f)
				}, want: "201"},
			},
			calls: begin + "get 200",
		},
	}...)
}
