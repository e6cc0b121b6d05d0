package livecheck

import "github.com/stripe/stripe-go/v79"

type check struct {
	name  string
	note  string // what Stripe does not document
	steps []step
}

type step struct {
	call call
	want outcome
}

const (
	visa            = "pm_card_visa"
	challengeCard   = "pm_card_threeDSecure2Required"
	ok              = "200"
	invalid         = "400 invalid_request_error"
	unexpectedState = invalid + " payment_intent_unexpected_state"
	methodFixed     = unexpectedState + " (payment_method)" // of a confirm with another card
	unknownIntent   = "404 invalid_request_error resource_missing (intent)"
	noFunds         = "402 card_error card_declined insufficient_funds"

	// executed is on all responses that Stripe stores. An invalid request does not use
	// its key.
	executed = "Stripe-Should-Retry: false"
	replayed = "Idempotent-Replayed: true, " + executed
	noHeader = ""

	created    = "requires_confirmation, payment method"
	paid       = "succeeded, payment method, charge, received 2000"
	challenged = "requires_action, payment method, use_stripe_sdk, client secret"
)

// declined is the state after a decline: without a payment method.
func declined(reason string) string { return "requires_payment_method, charge, failed: " + reason }

func checks() []check {
	all := []check{
		{name: "create an intent without confirming it", steps: []step{
			{create("create", visa), outcome{ok, executed, created}},
			{get(), outcome{ok, noHeader, created}},
		}},
		{name: "confirm an intent", steps: []step{
			{create("create", visa), outcome{ok, executed, created}},
			{confirm("confirm", offSession), outcome{ok, executed, paid}},
			{get(), outcome{ok, noHeader, paid}},
		}},
		{name: "confirm a card that needs no authentication, with the customer present", steps: []step{
			{create("create", visa), outcome{ok, executed, created}},
			{confirm("confirm", useStripeSDK), outcome{ok, executed, paid}},
		}},
		{
			name: "replay a create and a confirm",
			note: "whether a replay has the header Stripe-Should-Retry",
			steps: []step{
				{create("create", visa), outcome{ok, executed, created}},
				{create("create", visa), outcome{ok, replayed, created}},
				{confirm("confirm", offSession), outcome{ok, executed, paid}},
				{confirm("confirm", offSession), outcome{ok, replayed, paid}},
				{create("create", visa), outcome{ok, replayed, created}},
			},
		},
		{
			name: "replay a decline",
			note: "whether a replay has the header Stripe-Should-Retry",
			steps: []step{
				{create("create", "pm_card_visa_chargeDeclinedInsufficientFunds"), outcome{ok, executed, created}},
				{confirm("confirm", offSession), outcome{noFunds, executed, declined("card_declined insufficient_funds")}},
				{confirm("confirm", offSession), outcome{noFunds, replayed, declined("card_declined insufficient_funds")}},
			},
		},
		{name: "use a key again with other parameters", steps: []step{
			{create("create", visa), outcome{ok, executed, created}},
			{
				create("create", visa, func(_ *session, p *stripe.PaymentIntentParams) { p.Amount = stripe.Int64(amount + 1) }),
				outcome{"400 idempotency_error", noHeader, ""},
			},
			{create("create", visa), outcome{ok, replayed, created}},
		}},
		{name: "use a key again for another endpoint", steps: []step{
			{create("key", visa), outcome{ok, executed, created}},
			{confirm("key"), outcome{"400 idempotency_error", noHeader, ""}},
			{get(), outcome{ok, noHeader, created}},
		}},
		{name: "an unknown payment method leaves the key unused", steps: []step{
			{create("create", "pm_x"), outcome{invalid + " resource_missing (payment_method)", noHeader, ""}},
			{create("create", visa), outcome{ok, executed, created}},
		}},
		{name: "a missing, an unknown and a too small parameter", steps: []step{
			{
				create("missing", visa, func(_ *session, p *stripe.PaymentIntentParams) { p.Amount = nil }),
				outcome{invalid + " parameter_missing (amount)", noHeader, ""},
			},
			{
				create("unknown", visa, func(_ *session, p *stripe.PaymentIntentParams) { p.AddExtra("fake", "1") }),
				outcome{invalid + " parameter_unknown (fake)", noHeader, ""},
			},
			{
				create("small", visa, func(_ *session, p *stripe.PaymentIntentParams) { p.Amount = stripe.Int64(1) }),
				outcome{invalid + " amount_too_small (amount)", noHeader, ""},
			},
		}},
		{name: "use a payment method for two intents", steps: []step{
			{create("first", visa), outcome{ok, executed, created}},
			{confirm("confirm", offSession), outcome{ok, executed, paid}},
			{
				create("second", visa, func(s *session, p *stripe.PaymentIntentParams) { p.PaymentMethod = stripe.String(s.method) }),
				outcome{invalid, executed, ""},
			},
		}},
		{name: "cancel an intent, and cancel and confirm it again", steps: []step{
			{create("create", visa), outcome{ok, executed, created}},
			{cancel("cancel"), outcome{ok, executed, "canceled"}},
			{cancel("cancel"), outcome{ok, replayed, "canceled"}},
			{cancel("again"), outcome{unexpectedState, executed, "canceled"}},
			{confirm("confirm", offSession), outcome{unexpectedState, executed, "canceled"}},
			{get(), outcome{ok, noHeader, "canceled"}},
		}},
		{name: "confirm and cancel after success", steps: []step{
			{create("create", visa), outcome{ok, executed, created}},
			{confirm("confirm", offSession), outcome{ok, executed, paid}},
			{confirm("again", offSession), outcome{unexpectedState, noHeader, paid}}, // recorded, see ../recorded
			{cancel("cancel"), outcome{unexpectedState, executed, paid}},
		}},
		{name: "confirm with another card after a decline", steps: []step{
			{create("create", "pm_card_visa_chargeDeclinedInsufficientFunds"), outcome{ok, executed, created}},
			{confirm("first", offSession), outcome{noFunds, executed, declined("card_declined insufficient_funds")}},
			{confirm("second", offSession), outcome{unexpectedState, executed, declined("card_declined insufficient_funds")}},
			{confirm("third", offSession, withCard(visa)), outcome{ok, executed, paid}},
		}},
		{name: "cancel after a decline, which keeps the reason", steps: []step{
			{create("create", "pm_card_visa_chargeDeclinedInsufficientFunds"), outcome{ok, executed, created}},
			{confirm("confirm", offSession), outcome{noFunds, executed, declined("card_declined insufficient_funds")}},
			{cancel("cancel"), outcome{ok, executed, "canceled, charge, failed: card_declined insufficient_funds"}},
			{confirm("again", withCard(visa)), outcome{methodFixed, executed, "canceled, charge, failed: card_declined insufficient_funds"}},
		}},
		{name: "refund a part and the rest", steps: []step{
			{create("create", visa), outcome{ok, executed, created}},
			{confirm("confirm", offSession), outcome{ok, executed, paid}},
			{makeRefund("part", 500), outcome{ok, executed, "refund of 500, succeeded"}},
			{makeRefund("part", 500), outcome{ok, replayed, "refund of 500, succeeded"}},
			{getRefund(), outcome{ok, noHeader, "refund of 500, succeeded"}},
			{makeRefund("rest", 0), outcome{ok, executed, "refund of 1500, succeeded"}},
			{listRefunds(), outcome{ok, noHeader, "2 refunds"}},
			{makeRefund("more", 0), outcome{invalid + " charge_already_refunded", executed, ""}},
		}},
		{
			name: "refund more than the charge",
			note: "the headers of this error",
			steps: []step{
				{create("create", visa), outcome{ok, executed, created}},
				{confirm("confirm", offSession), outcome{ok, executed, paid}},
				{makeRefund("refund", amount+1), outcome{invalid + " (amount)", executed, ""}},
				{listRefunds(), outcome{ok, noHeader, "0 refunds"}},
			},
		},
		{name: "a list has an intent as soon as it is created", steps: []step{
			{create("create", visa), outcome{ok, executed, created}},
			{list(), outcome{ok, noHeader, created}},
			{confirm("confirm", offSession), outcome{ok, executed, paid}},
			{list(), outcome{ok, noHeader, paid}},
		}},
		{
			name: "a search by metadata finds an intent",
			note: "the error of an account to which it does not offer the search, such as those in India",
			steps: []step{
				{create("create", visa), outcome{ok, executed, created}},
				{search("metadata['order_id']:'stripe-check'"), outcome{ok, noHeader, created}},
				{search(`metadata["order_id"]:"stripe-check"`), outcome{ok, noHeader, created}},
				{search("stripe-check"), outcome{invalid, noHeader, ""}},
			},
		},
		{name: "a challenge can be cancelled", steps: []step{
			{create("create", challengeCard), outcome{ok, executed, created}},
			{confirm("confirm", useStripeSDK), outcome{ok, executed, challenged}},
			{confirm("confirm", useStripeSDK), outcome{ok, replayed, challenged}},
			{get(), outcome{ok, noHeader, challenged}},
			{cancel("cancel"), outcome{ok, executed, "canceled"}},
			{confirm("again", useStripeSDK, withCard(visa)), outcome{methodFixed, executed, "canceled"}},
		}},
		{name: "a card of another country", steps: []step{
			{create("create", "pm_card_pl"), outcome{ok, executed, created}},
			{confirm("confirm", offSession), outcome{ok, executed, paid}},
		}},
		{name: "a card that is set up for payments without the customer", steps: []step{
			{create("create", "pm_card_authenticationRequiredSetupForOffSession"), outcome{ok, executed, created}},
			{confirm("confirm", offSession), outcome{ok, executed, paid}},
		}},
		{name: "an unknown intent", steps: []step{
			{unknown(get()), outcome{unknownIntent, noHeader, ""}},
			{unknown(confirm("confirm", offSession)), outcome{unknownIntent, noHeader, ""}},
			{unknown(cancel("cancel")), outcome{unknownIntent, noHeader, ""}},
			{unknown(makeRefund("refund", 0)), outcome{invalid + " resource_missing (payment_intent)", noHeader, ""}},
		}},
		{
			name:  "list the refunds of an unknown intent",
			note:  "whether this is an error",
			steps: []step{{unknown(listRefunds()), outcome{ok, noHeader, "0 refunds"}}},
		},
	}

	for _, row := range []struct{ card, decline, param string }{
		{"pm_card_visa_chargeDeclined", "card_declined generic_decline", ""},
		{"pm_card_visa_chargeDeclinedLostCard", "card_declined lost_card", ""},
		{"pm_card_visa_chargeDeclinedStolenCard", "card_declined stolen_card", ""},
		{"pm_card_visa_chargeDeclinedVelocityLimitExceeded", "card_declined card_velocity_exceeded", ""},
		{"pm_card_radarBlock", "card_declined fraudulent", ""},
		{"pm_card_chargeCustomerFail", "card_declined generic_decline", ""},
		{"pm_card_chargeDeclinedExpiredCard", "expired_card expired_card", " (exp_month)"},
		{"pm_card_chargeDeclinedIncorrectCvc", "incorrect_cvc incorrect_cvc", " (cvc)"},
		{"pm_card_chargeDeclinedProcessingError", "processing_error processing_error", ""},
	} {
		response := "402 card_error " + row.decline + row.param
		all = append(all, check{name: "decline " + row.card, steps: []step{
			{create("create", row.card), outcome{ok, executed, created}},
			{confirm("confirm", offSession), outcome{response, executed, declined(row.decline)}},
			{get(), outcome{ok, noHeader, declined(row.decline)}},
		}})
	}

	const authenticate = "authentication_required authentication_required"
	for _, row := range []struct{ card, note string }{
		{"pm_card_authenticationRequired", ""},
		{"pm_card_authenticationRequiredOnSetup", ""},
		{"pm_card_authenticationRequiredChargeDeclinedInsufficientFunds", "the decline code without the customer"},
		{challengeCard, "the result without the customer"},
	} {
		all = append(all, check{name: "authentication of " + row.card, note: row.note, steps: []step{
			{create("present", row.card), outcome{ok, executed, created}},
			{confirm("challenge", useStripeSDK), outcome{ok, executed, challenged}},
			{create("absent", row.card), outcome{ok, executed, created}},
			{confirm("confirm", offSession), outcome{"402 card_error " + authenticate, executed, declined(authenticate)}},
		}})
	}
	return all
}
