package orders_test

import (
	"example.com/orders-api/payments/stripetest"
)

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
	for kind, calls := range map[stripetest.Fault]string{
		stripetest.CloseAfter: "confirm 0 ×3",
		stripetest.CutBody:    "confirm 200 ×3",
		stripetest.BadGateway: "confirm 502 ×3",
	} {
		table[string(kind)] = []step{fault(kind, confirm), create("201"), expectCalls("create 200, " + calls + ", get 200")}
	}
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

// requireAction leaves an intent that must be cancelled before the failure is stored (R23).
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
