package orders_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

type scenarios map[string][]step

// Each scenario has one behaviour of the provider. If it has a retry, it runs twice: the
// client retries, or the completer resumes the key.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for group, table := range map[string]scenarios{
		"action":      actionOutcomes(),
		"cards":       cardOutcomes(),
		"calls":       callOutcomes(),
		"stored":      storedOutcomes(),
		"unread":      unreadOutcomes(),
		"out of band": outOfBandOutcomes(),
		"unexpected":  unexpectedOutcomes(),
	} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			shared := newFixture(t, options{}, create("201"))
			for name, steps := range table {
				t.Run(name, func(t *testing.T) {
					f := shared.withNewKey(t)
					f.run(steps)
					f.checkResponse()
					if f.retried {
						f = shared.withNewKey(t)
						f.byCompleter = true
						f.run(steps)
						f.checkResponse()
					}
				})
			}
			checkInvariants(t, shared)
		})
	}
}

func (f *fixture) checkFinal() {
	f.t.Helper()
	f.checkResponse()
	checkInvariants(f.t, f)
}

func (f *fixture) checkResponse() {
	f.t.Helper()
	result, err := f.resume()
	require.NoError(f.t, err)
	charges := f.Stripe.ChargesByOrder(orderID(f.Account, f.key).String())
	switch result.Response.Status {
	case http.StatusCreated:
		require.Equal(f.t, orders.StatusPaid, f.getOrder().Status)
		require.Len(f.t, charges, 1)
		require.EqualValues(f.t, orderAmount, charges[0].Amount)
	default:
		require.Equal(f.t, orders.StatusPaymentFailed, f.getOrder().Status)
		require.Empty(f.t, charges)
		for _, intent := range f.intents() {
			if current := f.getOrder().PaymentIntentID; current != nil && *current == intent.ID {
				require.Contains(f.t, []string{"canceled", "requires_payment_method"}, intent.Status, "no later confirm charges it")
			}
		}
		require.Equal(f.t, map[string]string{"Content-Type": "application/problem+json"}, result.Response.Headers)
		if f.count("SELECT count(*) FROM audit_records WHERE resource_id = $1 AND action = 'order.requires_action'", orderID(f.Account, f.key).String()) > 0 {
			customerCannotPay(f) // with another card (R23)
		}
	}
}

func cardOutcomes() scenarios {
	table := scenarios{
		"accepted":               {create("201"), expectCalls("create 200, confirm 200")},
		"unknown payment method": {payWith("pm_nobody_knows"), create("422 resource_missing")},
		"declined too often, so no operator can help": {payWith(stripetest.DeclineLimitCard), create("402 card_decline_rate_limit_exceeded")},
		"processing, then succeeded": {
			payWith(stripetest.ProcessingCard),
			create("503 outcome unknown, 30s"),
			retry("503 outcome unknown, 30s"),
			paymentSucceeds, retry("201"),
		},
		"processing, then failed": {
			payWith(stripetest.ProcessingCard),
			create("503 outcome unknown, 30s"),
			paymentFails, retry("402 card_declined generic_decline"),
		},
	}
	for card, outcome := range map[string]string{
		"pm_card_visa_chargeDeclined":                  "402 card_declined generic_decline",
		"pm_card_visa_chargeDeclinedInsufficientFunds": "402 card_declined insufficient_funds",
		"pm_card_chargeDeclinedExpiredCard":            "402 expired_card expired_card",
		"pm_card_chargeDeclinedIncorrectCvc":           "402 incorrect_cvc incorrect_cvc",
		"pm_card_radarBlock":                           "402 card_declined fraudulent",
	} {
		table[card] = []step{payWith(card), create(outcome)}
	}
	for _, card := range challengeCards {
		table[card+", off-session"] = []step{
			payWith(card), offSession,
			create("402 authentication_required authentication_required"),
		}
	}
	return table
}

func outOfBandOutcomes() scenarios {
	return scenarios{
		"cancelled before the retry":           {stopBefore(confirm), cancelAtProvider, retry("422 payment_intent_canceled")},
		"cancelled before our confirm arrives": {before(confirm, cancelAtProvider), create("422 payment_intent_canceled")},
		"confirmed before the retry":           {stopBefore(confirm), confirmAtProvider, retry("201")},
		"confirmed before our confirm arrives": {before(confirm, confirmAtProvider), create("201")},
		"declined before the retry": {
			payWith("pm_card_visa_chargeDeclinedLostCard"), stopBefore(confirm), confirmAtProvider,
			retry("402 card_declined lost_card"),
		},
		"declined and then cancelled": {
			payWith("pm_card_visa_chargeDeclinedLostCard"), stopBefore(confirm), confirmAtProvider, cancelAtProvider,
			retry("402 card_declined lost_card"),
		},
		"approved before the retry":          {payWith("pm_card_authenticationRequired"), stopBefore(confirm), confirmOnSession, approve, retry("201")},
		"approved before our cancel arrives": {requireAction, before(cancel, approve), retry("201")},
		"not approved before our cancel arrives": {
			requireAction,
			before(cancel, failChallenge), retry("402 authentication_required authentication_required"),
		},
		"payment method used by another intent": {
			func(f *fixture) {
				other := f.outOfBand("/v1/payment_intents", url.Values{
					"amount": {"500"}, "currency": {"usd"}, "payment_method": {visa}, "payment_method_types[0]": {"card"},
				})
				f.do(payWith(other.PaymentMethod), stopBefore(confirm))
				f.outOfBand("/v1/payment_intents/"+other.ID+"/confirm", nil)
			},
			retry("422 payment_refused"),
		},
	}
}

func unexpectedOutcomes() scenarios {
	const unconfirmed = `"status": "requires_confirmation"`
	return scenarios{
		"another amount, so the confirm is not sent": {
			stopBefore(confirm),
			replaceInResponses(getIntent, `"amount": 4300`, `"amount": 4400`), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"),
		},
		"another amount from the start": {
			replaceInResponses(createIntent, `"amount": 4300`, `"amount": 4400`), create("503 unavailable, 1m0s"), expectAlert,
			retry("201"),
		},
		"another order's charge": {
			stopBefore(confirm), confirmAtProvider,
			replaceInResponses(getIntent, `"order_id": "`, `"order_id": "not `), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"),
		},
		"another currency since the confirm": {
			stopBefore(confirm),
			replaceSince(confirm, `"currency": "usd"`, `"currency": "eur"`), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"),
		},
		"unknown status": {
			stopBefore(confirm),
			replaceInResponses(getIntent, unconfirmed, `"status": "resting"`), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"),
		},
		"payment method dropped without an error": {
			stopBefore(confirm),
			replaceInResponses(getIntent, unconfirmed, `"status": "requires_payment_method"`), retry("422 payment_method_missing"),
		},
		"create declined": {
			respond(createIntent, 402, `"type":"card_error","code":"card_declined","decline_code":"fraudulent"`),
			create("402 card_declined fraudulent"),
		},
		"create declined without a code, which a failed order requires": {respond(createIntent, 402, `"type":"card_error"`), create("402 card_declined")},
		"create refused because of a wrong parameter": {
			respond(createIntent, 400, `"type":"invalid_request_error","code":"parameter_unknown","param":"amont"`),
			create("503 unavailable, 1m0s"), expectAlert,
			retry("201"),
		},
		"decline that leaves the intent unchanged": {
			respond(confirm, 402, `"type":"card_error","code":"card_declined","decline_code":"try_again_later"`),
			create("402 card_declined try_again_later"),
		},
		"confirm refused because of a wrong parameter": {
			respond(confirm, 400, `"type":"invalid_request_error","code":"parameter_unknown","param":"of_session"`),
			create("503 unavailable, 1m0s"), expectAlert,
			retry("201"),
		},
		"confirm refused because of the intent's state": {
			respond(confirm, 400, `"type":"invalid_request_error","code":"payment_intent_unexpected_state"`),
			create("201"),
		},
		"provider key used for another request": {
			respond(confirm, 400, `"type":"idempotency_error"`), create("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"),
		},
		"intent unknown at the provider": {
			stopBefore(confirm),
			respond(getIntent, 404, `"type":"invalid_request_error","code":"resource_missing","param":"intent"`),
			retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"),
		},
		"cancel without an effect": {
			requireAction,
			replaceInResponses(cancel, `"status": "canceled"`, `"status": "requires_action"`), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("422 payment_intent_canceled"),
		},
	}
}
