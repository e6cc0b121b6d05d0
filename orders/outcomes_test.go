package orders_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

type scenarios map[string][]step

// Each scenario has one behaviour of the provider. If it has a retry, it runs twice: the
// client retries, or the completer resumes the key. The pool has one connection.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for group, table := range map[string]scenarios{
		"action":      actionOutcomes(),
		"cards":       cardOutcomes(),
		"create":      createOutcomes(),
		"confirm":     confirmOutcomes(),
		"get":         getOutcomes(),
		"cancel":      cancelOutcomes(),
		"out of band": outOfBandOutcomes(),
		"unexpected":  unexpectedOutcomes(),
		"transient":   transientOutcomes(),
		"account":     accountOutcomes(),
	} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			shared := newFixture(t, options{})
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

// The provider does not respond, so the step's deadline ends the run. The held call
// continues when the retry starts, so the two are concurrent.
func TestOutcomes_timeout(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"create, held on arrival":    {timeOut(stripetest.HoldArrival, createIntent), create("503 unavailable, 1s"), retry("201")},
		"create, held while it runs": {timeOut(stripetest.HoldRunning, createIntent), create("503 unavailable, 2s"), retry("201")},
		"confirm, held on arrival": {
			timeOut(stripetest.HoldArrival, confirm), loseRequest(getIntent), create("503 outcome unknown, 1s"), retry("201"),
		},
		"confirm, held while it runs": {
			timeOut(stripetest.HoldRunning, confirm), loseRequest(getIntent), create("503 outcome unknown, 1s"), retry("201"),
		},
		"confirm, held before response": {
			timeOut(stripetest.HoldResponse, confirm), loseRequest(getIntent), create("503 outcome unknown, 1s"), retry("201"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			f.run(steps)
			f.checkFinal()
		})
	}
}

func (f *fixture) checkFinal() {
	f.t.Helper()
	f.checkResponse()
	checkInvariants(f.t, f)
}

// checkResponse compares the stored response with the order and the charges.
func (f *fixture) checkResponse() {
	f.t.Helper()
	result, err := f.resume()
	require.NoError(f.t, err)
	charges := f.stripe.ChargesByOrder(orderID(f.account, f.key).String())
	switch result.Response.Status {
	case http.StatusCreated:
		require.Equal(f.t, orders.StatusPaid, f.getOrder().Status)
		require.Len(f.t, charges, 1)
		require.EqualValues(f.t, orderAmount, charges[0].Amount)
	default:
		require.Equal(f.t, orders.StatusPaymentFailed, f.getOrder().Status)
		require.Empty(f.t, charges)
		require.Equal(f.t, map[string]string{"Content-Type": "application/problem+json"}, result.Response.Headers)
		if f.count("SELECT count(*) FROM audit_records WHERE resource_id = $1 AND action = 'order.requires_action'", orderID(f.account, f.key).String()) > 0 {
			customerCannotPay(f) // R23
		}
	}
}

func cardOutcomes() scenarios {
	table := scenarios{
		"accepted":                              {create("201"), expectCalls("create 200, confirm 200")},
		"disputed later":                        {payWith("pm_card_createDispute"), create("201")},
		"unknown payment method":                {payWith("pm_nobody_knows"), create("422 resource_missing"), expectCalls("create 400")},
		"off-session, set up for such payments": {payWith("pm_card_authenticationRequiredSetupForOffSession"), offSession, create("201")},
		"processing, then succeeded": {
			payWith(stripetest.ProcessingCard),
			create("503 outcome unknown, 30s"),
			retry("503 outcome unknown, 30s"),
			paymentSucceeds, retry("201"),
			expectCalls("create 200, confirm 200, get 200 ×2"),
		},
		"processing, then failed": {
			payWith(stripetest.ProcessingCard),
			create("503 outcome unknown, 30s"),
			paymentFails, retry("402 card_declined generic_decline"),
			expectCalls("create 200, confirm 200, get 200, cancel 200"),
		},
	}
	for card, outcome := range map[string]string{
		"pm_card_visa_chargeDeclined":                  "402 card_declined generic_decline",
		"pm_card_visa_chargeDeclinedInsufficientFunds": "402 card_declined insufficient_funds",
		"pm_card_chargeDeclinedExpiredCard":            "402 expired_card expired_card",
		"pm_card_chargeDeclinedIncorrectCvc":           "402 incorrect_cvc incorrect_cvc",
		"pm_card_radarBlock":                           "402 card_declined fraudulent",
	} {
		table[card] = []step{payWith(card), create(outcome), expectCalls("create 200, confirm 402")}
	}
	for _, card := range challengeCards {
		table[card+", off-session"] = []step{
			payWith(card), offSession,
			create("402 authentication_required authentication_required"),
			expectCalls("create 200, confirm 402"),
		}
	}
	return table
}

// transientOutcomes have faults of one call, which the payments client sends again.
func transientOutcomes() scenarios {
	table := scenarios{}
	for kind, status := range map[stripetest.Fault]int{
		stripetest.CloseBefore: 0,
		stripetest.RateLimit:   429,
		stripetest.Unavailable: 503,
		stripetest.KeyInUse:    409,
		stripetest.CloseAfter:  0,
		stripetest.BadGateway:  502,
	} {
		table[string(kind)] = []step{
			faultOnce(kind, createIntent, confirm), create("201"),
			expectCalls(fmt.Sprintf("create %d, create 200, confirm %d, confirm 200", status, status)),
		}
	}
	return table
}

// createOutcomes are about the create, which moves no money.
func createOutcomes() scenarios {
	table := scenarios{
		"stored 500 without an effect": {
			faultOnce(stripetest.ErrorBefore, createIntent), create("201"),
			expectCalls("create 500, create-2 200, confirm 200"),
		},
		"stored 500 after the effect, which leaves an unconfirmed intent": {
			faultOnce(stripetest.ErrorAfter, createIntent), create("201"),
			expectCalls("create 500, create-2 200, confirm 200"),
		},
		"stored 500 before the effect": {
			faultOnce(stripetest.ErrorLater, createIntent), create("201"),
			expectCalls("create 500, create-2 200, confirm 200"),
		},
		"500 under every key, so a retry first receives the stored 500": {
			fault(stripetest.ErrorBefore, createIntent), create("503 unavailable, 30s"),
			fault(stripetest.ErrorAfter, createIntent), retry("503 unavailable, 30s"),
			retry("201"),
			expectCalls("create 500, create-2 500, search 200, create-2 500, search 200, create-3 500, search 200, create-3 500, search 200, create-4 200, get 200, confirm 200"),
		},
		"rate limited, then an unknown payment method": {
			payWith("pm_nobody_knows"),
			rateLimit(createIntent), create("503 unavailable, 2s"),
			retry("422 resource_missing"),
			expectCalls("create 429 ×3, search 200, create 400"),
		},
		"unauthorized": {
			fault(stripetest.Unauthorized, createIntent), create("503 unavailable, 1m0s"), expectAlert,
			retry("201"),
			expectCalls("create 401, search 200, create 200, get 200, confirm 200"),
		},
	}
	for kind, test := range map[stripetest.Fault]struct{ outcome, calls string }{
		stripetest.CloseBefore: {"503 unavailable, 1s", "create 0 ×3"},
		stripetest.RateLimit:   {"503 unavailable, 2s", "create 429 ×3"},
		stripetest.Unavailable: {"503 unavailable, 2s", "create 503 ×3"},
		stripetest.KeyInUse:    {"503 unavailable, 2s", "create 409 ×3"},
		stripetest.CloseAfter:  {"503 unavailable, 1s", "create 0 ×3"},
		stripetest.CutBody:     {"503 unavailable, 2s", "create 200 ×3"},
		stripetest.BadGateway:  {"503 unavailable, 2s", "create 502 ×3"},
	} {
		table[string(kind)] = []step{
			fault(kind, createIntent), create(test.outcome),
			retry("201"),
			expectCalls(test.calls + ", search 200, create 200, get 200, confirm 200"),
		}
	}
	return table
}

// confirmOutcomes are about the confirm, which may have moved money.
func confirmOutcomes() scenarios {
	table := scenarios{
		"stored 500 without an effect": {
			faultOnce(stripetest.ErrorBefore, confirm), create("201"),
			expectCalls("create 200, confirm 500, get 200 ×2, confirm-2 200"),
		},
		"stored 500 after the effect": {
			faultOnce(stripetest.ErrorAfter, confirm), create("201"),
			expectCalls("create 200, confirm 500, get 200"),
		},
		"stored 500 after the decline": {
			payWith("pm_card_visa_chargeDeclinedLostCard"),
			faultOnce(stripetest.ErrorAfter, confirm), create("402 card_declined lost_card"),
			expectCalls("create 200, confirm 500, get 200, cancel 200"),
		},
		"stored 500 before the effect, card charged": {
			faultOnce(stripetest.ErrorLater, confirm), create("201"),
			expectCalls("create 200, confirm 500, get 200 ×2, confirm-2 200"),
		},
		"stored 500 before the effect, card declined": {
			payWith(declinedCard),
			faultOnce(stripetest.ErrorLater, confirm), create("402 card_declined generic_decline"),
			expectCalls("create 200, confirm 500, get 200 ×2, confirm-2 402"),
		},
		"500 under every key": {
			fault(stripetest.ErrorBefore, confirm), create("503 outcome unknown, 30s"),
			fault(stripetest.ErrorBefore, confirm), retry("503 outcome unknown, 30s"),
			retry("201"),
			expectCalls("create 200, confirm 500, get 200 ×2, confirm-2 500, get 200 ×2, " +
				"confirm-2 500, get 200 ×2, confirm-3 500, get 200 ×2, " +
				"confirm-3 500, get 200 ×2, confirm-4 200"),
		},
		"stored 500 after the effect, and the intent cannot be read": {
			fault(stripetest.ErrorAfter, confirm), fault(stripetest.ErrorBefore, getIntent), create("503 outcome unknown, 2s"),
			retry("201"),
			expectCalls("create 200, confirm 500, get 500 ×3, get 200"),
		},
		"charged, and both responses lost": {
			loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"),
			expectCharges(1),
			retry("201"),
			expectCalls("create 200, confirm 0 ×3, get 0 ×3, get 200"),
		},
		"declined, and both responses lost": {
			payWith("pm_card_visa_chargeDeclinedStolenCard"),
			loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"),
			retry("402 card_declined stolen_card"),
			expectCalls("create 200, confirm 0 ×3, get 0 ×3, get 200, cancel 200"),
		},
		"unauthorized": {
			fault(stripetest.Unauthorized, confirm), create("503 unavailable, 1m0s"), expectAlert,
			retry("201"),
			expectCalls("create 200, confirm 401, get 200, confirm 200"),
		},
		"unauthorized on a retry, when the first confirm may have charged the card": {
			loseRequest(confirm), create("503 outcome unknown, 1s"),
			fault(stripetest.Unauthorized, confirm), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"),
			expectCalls("create 200, confirm 0 ×3, get 200 ×2, confirm 401, get 200 ×2, confirm 200"),
		},
		"rate limited on a retry, when the first confirm may have charged the card": {
			loseRequest(confirm), create("503 outcome unknown, 1s"),
			rateLimit(confirm), retry("503 outcome unknown, 2s"),
			retry("201"),
			expectCalls("create 200, confirm 0 ×3, get 200 ×2, confirm 429 ×3, get 200 ×2, confirm 200"),
		},
	}
	// The card is charged and the response lost: the intent shows it.
	for kind, calls := range map[stripetest.Fault]string{
		stripetest.CloseAfter: "confirm 0 ×3",
		stripetest.CutBody:    "confirm 200 ×3",
		stripetest.BadGateway: "confirm 502 ×3",
	} {
		table[string(kind)] = []step{fault(kind, confirm), create("201"), expectCalls("create 200, " + calls + ", get 200")}
	}
	// The intent cannot be read either, so the retry resolves the outcome.
	for kind, calls := range map[stripetest.Fault]string{
		stripetest.CutBody:     "confirm 200 ×3, get 503 ×3, get 200",
		stripetest.ErrorBefore: "confirm 500, get 503 ×3, get 200, confirm 500, get 200 ×2, confirm-2 200",
		stripetest.ErrorLater:  "confirm 500, get 503 ×3, get 200",
	} {
		table[string(kind)+", and the intent cannot be read"] = []step{
			fault(kind, confirm), makeUnavailable(getIntent), create("503 outcome unknown, 2s"),
			retry("201"),
			expectCalls("create 200, " + calls),
		}
	}
	// The card is not charged. The problem is "unavailable" only if that is certain.
	for kind, test := range map[stripetest.Fault]struct{ outcome, calls string }{
		stripetest.CloseBefore: {"503 outcome unknown, 1s", "confirm 0 ×3, get 200 ×2"},
		stripetest.RateLimit:   {"503 unavailable, 2s", "confirm 429 ×3, get 200"},
		stripetest.Unavailable: {"503 outcome unknown, 2s", "confirm 503 ×3, get 200 ×2"},
		stripetest.KeyInUse:    {"503 outcome unknown, 2s", "confirm 409 ×3, get 200 ×2"},
	} {
		table[string(kind)] = []step{
			fault(kind, confirm), create(test.outcome),
			expectCharges(0),
			retry("201"),
			expectCalls("create 200, " + test.calls + ", confirm 200"),
		}
	}
	return table
}

// accountOutcomes are about a provider account that is not set up. The order continues under
// another key, because Stripe replays the error.
func accountOutcomes() scenarios {
	return scenarios{
		"create": {
			fault(stripetest.AccountNotReady, createIntent), create("503 unavailable, 1m0s"), expectAlert,
			fault(stripetest.AccountNotReady, createIntent), retry("503 unavailable, 1m0s"),
			retry("201"),
			expectCalls("create 400, search 200, create 400, search 200, create-2 400, search 200, create-2 400, search 200, create-3 200, get 200, confirm 200"),
		},
		"confirm": {
			fault(stripetest.AccountNotReady, confirm), create("503 unavailable, 1m0s"), expectAlert,
			fault(stripetest.AccountNotReady, confirm), retry("503 outcome unknown, 1m0s"),
			retry("201"),
			expectCalls("create 200, confirm 400, get 200, confirm 400, get 200 ×2, confirm-2 400, get 200 ×2, " +
				"confirm-2 400, get 200 ×2, confirm-3 200"),
		},
		"cancel": {
			requireAction,
			fault(stripetest.AccountNotReady, cancel), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("402 authentication_required authentication_required"),
			expectCalls("get 200, cancel 400, get 200, cancel 400, get 200, cancel-2 200"),
		},
	}
}

// getOutcomes are about the read of the intent, with which a retry starts.
func getOutcomes() scenarios {
	table := scenarios{
		"unauthorized": {
			stopBefore(confirm),
			fault(stripetest.Unauthorized, getIntent), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"),
			expectCalls("get 401, get 200, confirm 200"),
		},
	}
	for kind, test := range map[stripetest.Fault]struct{ outcome, calls string }{
		stripetest.CloseBefore: {"503 outcome unknown, 1s", "get 0 ×3, get 200"},
		stripetest.RateLimit:   {"503 outcome unknown, 2s", "get 429 ×3, get 200"},
		stripetest.Unavailable: {"503 outcome unknown, 2s", "get 503 ×3, get 200"},
		stripetest.ErrorBefore: {"503 outcome unknown, 2s", "get 500 ×3, get 200"},
		stripetest.CutBody:     {"503 outcome unknown, 2s", "get 200 ×4"},
	} {
		table[string(kind)] = []step{
			stopBefore(confirm),
			fault(kind, getIntent), retry(test.outcome),
			retry("201"),
			expectCalls(test.calls + ", confirm 200"),
		}
	}
	return table
}

// requireAction leaves an intent that requires an action of the customer, who is not
// present: it must be cancelled before the failure is stored (R23).
func requireAction(f *fixture) {
	f.do(payWith("pm_card_authenticationRequired"), offSession, stopBefore(confirm), confirmOnSession)
}

func cancelOutcomes() scenarios {
	const (
		declined = "402 authentication_required authentication_required"
		canceled = "422 payment_intent_canceled" // the reason was lost with the response
	)
	table := scenarios{
		"success": {requireAction, retry(declined), expectCalls("get 200, cancel 200")},
		"stored 500 without an effect": {
			requireAction,
			faultOnce(stripetest.ErrorBefore, cancel), retry(declined),
			expectCalls("get 200, cancel 500, get 200, cancel-2 200"),
		},
		"stored 500 after the effect": {
			requireAction,
			faultOnce(stripetest.ErrorAfter, cancel), retry(canceled),
			expectCalls("get 200, cancel 500, get 200"),
		},
		"500 under every key": {
			requireAction,
			fault(stripetest.ErrorBefore, cancel), retry("503 outcome unknown, 30s"),
			retry(declined),
			expectCalls("get 200, cancel 500, get 200, cancel-2 500, get 200, cancel-2 500, get 200, cancel-3 200"),
		},
		"unauthorized": {
			requireAction,
			fault(stripetest.Unauthorized, cancel), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry(declined),
			expectCalls("get 200, cancel 401, get 200, cancel 200"),
		},
	}
	for kind, test := range map[stripetest.Fault]struct{ outcome, final, calls string }{
		stripetest.CloseBefore: {"503 outcome unknown, 1s", declined, "cancel 0 ×3, get 200, cancel 200"},
		stripetest.RateLimit:   {"503 outcome unknown, 2s", declined, "cancel 429 ×3, get 200, cancel 200"},
		stripetest.Unavailable: {"503 outcome unknown, 2s", declined, "cancel 503 ×3, get 200, cancel 200"},
		stripetest.KeyInUse:    {"503 outcome unknown, 2s", declined, "cancel 409 ×3, get 200, cancel 200"},
		stripetest.CloseAfter:  {"503 outcome unknown, 1s", canceled, "cancel 0 ×3, get 200"},
		stripetest.CutBody:     {"503 outcome unknown, 2s", canceled, "cancel 200 ×3, get 200"},
	} {
		table[string(kind)] = []step{
			requireAction,
			fault(kind, cancel), retry(test.outcome),
			retry(test.final),
			expectCalls("get 200, " + test.calls),
		}
	}
	return table
}

// outOfBandOutcomes: another program changes the intent.
func outOfBandOutcomes() scenarios {
	return scenarios{
		"cancelled before the retry": {
			stopBefore(confirm), cancelAtProvider,
			retry("422 payment_intent_canceled"), expectCalls("get 200"),
		},
		"cancelled before our confirm arrives": {
			before(confirm, cancelAtProvider), create("422 payment_intent_canceled"),
			expectCalls("create 200, confirm 400, get 200"),
		},
		"confirmed before the retry": {
			stopBefore(confirm), confirmAtProvider,
			retry("201"), expectCalls("get 200"),
		},
		"confirmed before our confirm arrives": {
			before(confirm, confirmAtProvider), create("201"),
			expectCalls("create 200, confirm 400, get 200"),
		},
		"declined before the retry": {
			payWith("pm_card_visa_chargeDeclinedLostCard"), stopBefore(confirm), confirmAtProvider,
			retry("402 card_declined lost_card"), expectCalls("get 200, cancel 200"),
		},
		"declined and then cancelled": {
			payWith("pm_card_visa_chargeDeclinedLostCard"), stopBefore(confirm), confirmAtProvider, cancelAtProvider,
			retry("402 card_declined lost_card"), expectCalls("get 200"),
		},
		"approved before the retry": {
			payWith("pm_card_authenticationRequired"), stopBefore(confirm), confirmOnSession, approve,
			retry("201"), expectCalls("get 200"),
		},
		"approved before our cancel arrives": {
			requireAction,
			before(cancel, approve), retry("201"),
			expectCalls("get 200, cancel 400, get 200"),
		},
		"not approved before our cancel arrives": {
			requireAction,
			before(cancel, failChallenge), retry("402 authentication_required authentication_required"),
			expectCalls("get 200, cancel 200"),
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
			expectCalls("get 200, confirm 400, get 200, cancel 200"),
		},
	}
}

// unexpectedOutcomes: responses that the fake provider does not send by itself.
func unexpectedOutcomes() scenarios {
	const unconfirmed = `"status": "requires_confirmation"`
	return scenarios{
		"another amount, so the confirm is not sent": {
			stopBefore(confirm),
			replaceInResponses(getIntent, `"amount": 4300`, `"amount": 4400`), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"), expectCalls("get 200 ×2, confirm 200"),
		},
		"another amount from the start": {
			replaceInResponses(createIntent, `"amount": 4300`, `"amount": 4400`), create("503 unavailable, 1m0s"), expectAlert,
			retry("201"), expectCalls("create 200, search 200, create 200, get 200, confirm 200"),
		},
		"another order's charge": {
			stopBefore(confirm), confirmAtProvider,
			replaceInResponses(getIntent, `"order_id": "`, `"order_id": "not `), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"), expectCalls("get 200 ×2"),
		},
		"another currency since the confirm": {
			stopBefore(confirm),
			replaceSince(confirm, `"currency": "usd"`, `"currency": "eur"`), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"), expectCalls("get 200, confirm 200, get 200 ×2"),
		},
		"unknown status": {
			stopBefore(confirm),
			replaceInResponses(getIntent, unconfirmed, `"status": "resting"`), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"), expectCalls("get 200 ×2, confirm 200"),
		},
		"authorised and not captured": {
			stopBefore(confirm),
			replaceInResponses(getIntent, unconfirmed, `"status": "requires_capture"`), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"), expectCalls("get 200 ×2, confirm 200"),
		},
		"payment method dropped without an error": {
			stopBefore(confirm),
			replaceInResponses(getIntent, unconfirmed, `"status": "requires_payment_method"`), retry("422 payment_method_missing"),
			expectCalls("get 200, cancel 200"),
		},
		"create declined": {
			respond(createIntent, 402, `"type":"card_error","code":"card_declined","decline_code":"fraudulent"`),
			create("402 card_declined fraudulent"), expectCalls("create 402"),
		},
		"create declined without a code, which a failed order requires": {
			respond(createIntent, 402, `"type":"card_error"`),
			create("402 card_declined"), expectCalls("create 402"),
		},
		"create refused because of a wrong parameter": {
			respond(createIntent, 400, `"type":"invalid_request_error","code":"parameter_unknown","param":"amont"`),
			create("503 unavailable, 1m0s"), expectAlert,
			retry("201"), expectCalls("create 400, search 200, create 200, get 200, confirm 200"),
		},
		"decline that leaves the intent unchanged": {
			respond(confirm, 402, `"type":"card_error","code":"card_declined","decline_code":"try_again_later"`),
			create("402 card_declined try_again_later"), expectCalls("create 200, confirm 402, get 200, cancel 200"),
		},
		"confirm refused because of a wrong parameter": {
			respond(confirm, 400, `"type":"invalid_request_error","code":"parameter_unknown","param":"of_session"`),
			create("503 unavailable, 1m0s"), expectAlert,
			retry("201"), expectCalls("create 200, confirm 400, get 200, confirm 200"),
		},
		"confirm refused because of the intent's state": {
			respond(confirm, 400, `"type":"invalid_request_error","code":"payment_intent_unexpected_state"`),
			create("201"), expectCalls("create 200, confirm 400, get 200 ×2, confirm-2 200"),
		},
		"provider key used for another request": {
			respond(confirm, 400, `"type":"idempotency_error"`), create("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"), expectCalls("create 200, confirm 400, get 200 ×2, confirm 200"),
		},
		"intent unknown at the provider": {
			stopBefore(confirm),
			respond(getIntent, 404, `"type":"invalid_request_error","code":"resource_missing","param":"intent"`),
			retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("201"), expectCalls("get 404, get 200, confirm 200"),
		},
		"cancel without an effect": {
			requireAction,
			replaceInResponses(cancel, `"status": "canceled"`, `"status": "requires_action"`), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry("422 payment_intent_canceled"), expectCalls("get 200, cancel 200, get 200"),
		},
	}
}
