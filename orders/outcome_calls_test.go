package orders_test

import (
	"slices"

	"example.com/orders-api/payments/stripetest"
)

// createOutcomes are about the create, which moves no money.
func createOutcomes() []outcome {
	rows := []outcome{
		{
			name:  "stored 500 without an effect",
			tries: []try{{faults: once(stripetest.ErrorBefore, createEndpoint), want: "201"}},
			calls: "create 500, create-2 200, confirm 200",
		},
		{
			name:  "stored 500 after the effect, which leaves an unconfirmed intent",
			tries: []try{{faults: once(stripetest.ErrorAfter, createEndpoint), want: "201"}},
			calls: "create 500, create-2 200, confirm 200",
		},
		{
			name:  "stored 500 before the effect",
			tries: []try{{faults: once(stripetest.ErrorLater, createEndpoint), want: "201"}},
			calls: "create 500, create-2 200, confirm 200",
		},
		{
			name: "500 under every key",
			tries: []try{
				{faults: always(stripetest.ErrorBefore, createEndpoint), want: "unavailable 30s"},
				{faults: always(stripetest.ErrorAfter, createEndpoint), want: "unavailable 30s"},
				{want: "201"},
			},
			// Each run first receives the stored 500 of the run before it.
			calls: "create 500, create-2 500 ×2, create-3 500 ×2, create-4 200, get 200, confirm 200",
		},
		{
			name: "rate limited, then an unknown payment method",
			card: "pm_nobody_knows",
			tries: []try{
				{faults: always(stripetest.RateLimit, createEndpoint), want: "unavailable 2s"},
				{want: "422 resource_missing"},
			},
			calls: "create 429 ×3, create 400",
		},
	}
	for fault, row := range map[stripetest.Fault]struct{ want, calls string }{
		stripetest.CloseBefore:  {"unavailable 1s", "create 0 ×3, create 200"},
		stripetest.RateLimit:    {"unavailable 2s", "create 429 ×3, create 200"},
		stripetest.LockTimeout:  {"unavailable 1s", "create 429 ×3, create 200"},
		stripetest.Unauthorized: {"unavailable 1m0s", "create 401, create 200"},
		stripetest.Unavailable:  {"unavailable 2s", "create 503 ×3, create 200"},
		stripetest.KeyInUse:     {"unavailable 2s", "create 409 ×3, create 200"},
		stripetest.CloseAfter:   {"unavailable 1s", "create 0 ×3, create 200"},
		stripetest.ResetAfter:   {"unavailable 1s", "create 0 ×3, create 200"},
		stripetest.CutBody:      {"unavailable 2s", "create 200 ×4"},
		stripetest.BadGateway:   {"unavailable 2s", "create 502 ×3, create 200"},
	} {
		rows = append(rows, outcome{
			name:      string(fault),
			tries:     []try{{faults: always(fault, createEndpoint), want: row.want}, {want: "201"}},
			calls:     row.calls + ", get 200, confirm 200",
			logsError: fault == stripetest.Unauthorized,
		})
	}
	return rows
}

// confirmOutcomes are about the confirm, which may have moved money.
func confirmOutcomes() []outcome {
	rows := []outcome{
		{
			name:  "stored 500 without an effect",
			tries: []try{{faults: once(stripetest.ErrorBefore, confirmEndpoint), want: "201"}},
			calls: "create 200, confirm 500, get 200 ×2, confirm-2 200",
		},
		{
			name:  "stored 500 after the effect",
			tries: []try{{faults: once(stripetest.ErrorAfter, confirmEndpoint), want: "201"}},
			calls: "create 200, confirm 500, get 200",
		},
		{
			name:  "stored 500 after the decline",
			card:  "pm_card_visa_chargeDeclinedLostCard",
			tries: []try{{faults: once(stripetest.ErrorAfter, confirmEndpoint), want: "402 card_declined lost_card"}},
			calls: "create 200, confirm 500, get 200, cancel 200",
		},
		{
			name:  "stored 500 before the effect, card charged",
			tries: []try{{faults: once(stripetest.ErrorLater, confirmEndpoint), want: "201"}},
			calls: "create 200, confirm 500, get 200 ×2, confirm-2 200",
		},
		{
			name:  "stored 500 before the effect, card declined",
			card:  "pm_card_visa_chargeDeclined",
			tries: []try{{faults: once(stripetest.ErrorLater, confirmEndpoint), want: "402 card_declined generic_decline"}},
			calls: "create 200, confirm 500, get 200 ×2, confirm-2 402",
		},
		{
			name: "500 under every key",
			tries: []try{
				{faults: always(stripetest.ErrorBefore, confirmEndpoint), want: "unknown 30s"},
				{faults: always(stripetest.ErrorBefore, confirmEndpoint), want: "unknown 30s"},
				{want: "201"},
			},
			calls: "create 200, confirm 500, get 200 ×2, confirm-2 500, get 200 ×2, " +
				"confirm-2 500, get 200 ×2, confirm-3 500, get 200 ×2, " +
				"confirm-3 500, get 200 ×2, confirm-4 200",
		},
		{
			name: "stored 500 after the effect, and the intent cannot be read",
			tries: []try{
				{faults: slices.Concat(always(stripetest.ErrorAfter, confirmEndpoint), always(stripetest.ErrorBefore, getEndpoint)), want: "unknown 2s"},
				{want: "201"},
			},
			calls: "create 200, confirm 500, get 500 ×3, get 200",
		},
		{
			name: "charged, and both responses lost",
			tries: []try{
				{faults: always(stripetest.CloseAfter, confirmEndpoint, getEndpoint), want: "unknown 1s"},
				{want: "201"},
			},
			calls: "create 200, confirm 0 ×3, get 0 ×3, get 200",
		},
		{
			name: "declined, and both responses lost",
			card: "pm_card_visa_chargeDeclinedStolenCard",
			tries: []try{
				{faults: always(stripetest.CloseAfter, confirmEndpoint, getEndpoint), want: "unknown 1s"},
				{want: "402 card_declined stolen_card"},
			},
			calls: "create 200, confirm 0 ×3, get 0 ×3, get 200, cancel 200",
		},
	}
	// The card is charged and the response lost: the intent shows it.
	for fault, calls := range map[stripetest.Fault]string{
		stripetest.CloseAfter: "confirm 0 ×3",
		stripetest.ResetAfter: "confirm 0 ×3",
		stripetest.CutBody:    "confirm 200 ×3",
		stripetest.BadGateway: "confirm 502 ×3",
	} {
		rows = append(rows, outcome{
			name:  string(fault),
			tries: []try{{faults: always(fault, confirmEndpoint), want: "201"}},
			calls: "create 200, " + calls + ", get 200",
		})
	}
	// The intent cannot be read either, so the retry resolves the outcome.
	for fault, calls := range map[stripetest.Fault]string{
		stripetest.CutBody:     "confirm 200 ×3, get 503 ×3, get 200",
		stripetest.BadGateway:  "confirm 502 ×3, get 503 ×3, get 200",
		stripetest.ErrorBefore: "confirm 500, get 503 ×3, get 200, confirm 500, get 200 ×2, confirm-2 200",
		stripetest.ErrorLater:  "confirm 500, get 503 ×3, get 200",
	} {
		rows = append(rows, outcome{
			name: string(fault) + ", and the intent cannot be read",
			tries: []try{
				{faults: slices.Concat(always(fault, confirmEndpoint), always(stripetest.Unavailable, getEndpoint)), want: "unknown 2s"},
				{want: "201"},
			},
			calls: "create 200, " + calls,
		})
	}
	// The card is not charged. Only if that is certain is the problem "unavailable".
	for fault, row := range map[stripetest.Fault]struct{ want, calls string }{
		stripetest.CloseBefore:  {"unknown 1s", "confirm 0 ×3, get 200 ×2"},
		stripetest.RateLimit:    {"unavailable 2s", "confirm 429 ×3, get 200"},
		stripetest.LockTimeout:  {"unavailable 1s", "confirm 429 ×3, get 200"},
		stripetest.Unauthorized: {"unavailable 1m0s", "confirm 401, get 200"},
		stripetest.Unavailable:  {"unknown 2s", "confirm 503 ×3, get 200 ×2"},
		stripetest.KeyInUse:     {"unknown 2s", "confirm 409 ×3, get 200 ×2"},
	} {
		rows = append(rows, outcome{
			name:      string(fault),
			tries:     []try{{faults: always(fault, confirmEndpoint), want: row.want}, {want: "201"}},
			calls:     "create 200, " + row.calls + ", confirm 200",
			logsError: fault == stripetest.Unauthorized,
		})
	}
	// A retry cannot be certain: the first confirm may have charged the card.
	for fault, row := range map[stripetest.Fault]struct{ want, calls string }{
		stripetest.RateLimit:    {"unknown 2s", "confirm 429 ×3"},
		stripetest.Unauthorized: {"unknown 1m0s", "confirm 401"},
	} {
		rows = append(rows, outcome{
			name: string(fault) + " on a retry",
			tries: []try{
				{faults: always(stripetest.CloseBefore, confirmEndpoint), want: "unknown 1s"},
				{faults: always(fault, confirmEndpoint), want: row.want},
				{want: "201"},
			},
			calls:     "create 200, confirm 0 ×3, get 200 ×2, " + row.calls + ", get 200 ×2, confirm 200",
			logsError: fault == stripetest.Unauthorized,
		})
	}
	return rows
}

// accountOutcomes are about an account that is not set up. That is not the customer's
// fault, so the order is charged once an operator has corrected it. Stripe stores the
// error under the key, so the order continues under another one.
func accountOutcomes() []outcome {
	return []outcome{
		{
			name: "create",
			tries: []try{
				{faults: always(stripetest.AccountNotReady, createEndpoint), want: "unavailable 1m0s"},
				{faults: always(stripetest.AccountNotReady, createEndpoint), want: "unavailable 1m0s"},
				{want: "201"},
			},
			calls:     "create 400 ×2, create-2 400 ×2, create-3 200, get 200, confirm 200",
			logsError: true,
		},
		{
			name: "confirm",
			tries: []try{
				{faults: always(stripetest.AccountNotReady, confirmEndpoint), want: "unavailable 1m0s"},
				{faults: always(stripetest.AccountNotReady, confirmEndpoint), want: "unknown 1m0s"},
				{want: "201"},
			},
			calls: "create 200, confirm 400, get 200, confirm 400, get 200 ×2, confirm-2 400, get 200 ×2, " +
				"confirm-2 400, get 200 ×2, confirm-3 200",
			logsError: true,
		},
		{
			name:       "cancel",
			offSession: true,
			card:       "pm_card_authenticationRequired",
			tries: []try{
				{faults: always(stripetest.RateLimit, confirmEndpoint), want: "unavailable 2s"},
				{before: confirmOnSession, faults: always(stripetest.AccountNotReady, cancelEndpoint), want: "unknown 1m0s"},
				{want: "402 authentication_required authentication_required"},
			},
			calls:     "create 200, confirm 429 ×3, get 200, cancel 400, get 200, cancel 400, get 200, cancel-2 200",
			logsError: true,
		},
	}
}

// getOutcomes are about the read of the intent with which a retry starts.
func getOutcomes() []outcome {
	var rows []outcome
	for fault, row := range map[stripetest.Fault]struct{ want, calls string }{
		stripetest.CloseBefore:  {"unknown 1s", "get 0 ×3, get 200"},
		stripetest.RateLimit:    {"unknown 2s", "get 429 ×3, get 200"},
		stripetest.Unauthorized: {"unknown 1m0s", "get 401, get 200"},
		stripetest.Unavailable:  {"unknown 2s", "get 503 ×3, get 200"},
		stripetest.ErrorBefore:  {"unknown 2s", "get 500 ×3, get 200"},
		stripetest.CloseAfter:   {"unknown 1s", "get 0 ×3, get 200"},
		stripetest.ResetAfter:   {"unknown 1s", "get 0 ×3, get 200"},
		stripetest.CutBody:      {"unknown 2s", "get 200 ×4"},
		stripetest.BadGateway:   {"unknown 2s", "get 502 ×3, get 200"},
	} {
		rows = append(rows, outcome{
			name: string(fault),
			tries: []try{
				{faults: always(stripetest.RateLimit, confirmEndpoint), want: "unavailable 2s"},
				{faults: always(fault, getEndpoint), want: row.want},
				{want: "201"},
			},
			calls:     "create 200, confirm 429 ×3, " + row.calls + ", confirm 200",
			logsError: fault == stripetest.Unauthorized,
		})
	}
	return rows
}

// cancelOutcomes are about an intent that requires an action of the customer, who is not
// present. It is cancelled before the failure is stored (R23).
func cancelOutcomes() []outcome {
	const (
		declined = "402 authentication_required authentication_required"
		canceled = "422 payment_intent_canceled" // the reason was lost with the response
	)
	rows := []outcome{
		requiresAction("success", try{want: declined}, try{want: declined}, "cancel 200"),
		requiresAction("stored 500 without an effect",
			try{faults: once(stripetest.ErrorBefore, cancelEndpoint), want: declined}, try{want: declined},
			"cancel 500, get 200, cancel-2 200"),
		requiresAction("stored 500 after the effect",
			try{faults: once(stripetest.ErrorAfter, cancelEndpoint), want: canceled}, try{want: canceled},
			"cancel 500, get 200"),
		requiresAction("500 under every key",
			try{faults: always(stripetest.ErrorBefore, cancelEndpoint), want: "unknown 30s"}, try{want: declined},
			"cancel 500, get 200, cancel-2 500, get 200, cancel-2 500, get 200, cancel-3 200"),
	}
	for fault, row := range map[stripetest.Fault]struct{ want, final, calls string }{
		stripetest.CloseBefore:  {"unknown 1s", declined, "cancel 0 ×3, get 200, cancel 200"},
		stripetest.RateLimit:    {"unknown 2s", declined, "cancel 429 ×3, get 200, cancel 200"},
		stripetest.LockTimeout:  {"unknown 1s", declined, "cancel 429 ×3, get 200, cancel 200"},
		stripetest.Unauthorized: {"unknown 1m0s", declined, "cancel 401, get 200, cancel 200"},
		stripetest.Unavailable:  {"unknown 2s", declined, "cancel 503 ×3, get 200, cancel 200"},
		stripetest.KeyInUse:     {"unknown 2s", declined, "cancel 409 ×3, get 200, cancel 200"},
		stripetest.CloseAfter:   {"unknown 1s", canceled, "cancel 0 ×3, get 200"},
		stripetest.ResetAfter:   {"unknown 1s", canceled, "cancel 0 ×3, get 200"},
		stripetest.CutBody:      {"unknown 2s", canceled, "cancel 200 ×3, get 200"},
		stripetest.BadGateway:   {"unknown 2s", canceled, "cancel 502 ×3, get 200"},
	} {
		o := requiresAction(string(fault), try{faults: always(fault, cancelEndpoint), want: row.want}, try{want: row.final}, row.calls)
		o.logsError = fault == stripetest.Unauthorized
		rows = append(rows, o)
	}
	return rows
}

// requiresAction is an outcome whose second try finds an intent that requires an
// action of the customer.
func requiresAction(name string, second, third try, calls string) outcome {
	second.before = confirmOnSession
	return outcome{
		name:       name,
		card:       "pm_card_authenticationRequired",
		offSession: true,
		tries:      []try{{faults: always(stripetest.RateLimit, confirmEndpoint), want: "unavailable 2s"}, second, third},
		calls:      "create 200, confirm 429 ×3, get 200, " + calls,
	}
}

// timeoutOutcomes have requests without a response. A held request continues when
// the retry starts, so the two are concurrent.
func timeoutOutcomes() []outcome {
	var rows []outcome
	for _, fault := range []stripetest.Fault{stripetest.HoldArrival, stripetest.HoldRunning, stripetest.HoldResponse} {
		first := "unavailable 1s"
		if fault == stripetest.HoldRunning {
			first = "unavailable 2s" // the second send conflicts with the first
		}
		rows = append(rows, outcome{
			name:  "create: " + string(fault),
			tries: []try{{faults: always(fault, createEndpoint), want: first}, {want: "201"}},
		}, outcome{
			name: "confirm: " + string(fault),
			tries: []try{
				{faults: slices.Concat(always(fault, confirmEndpoint), always(stripetest.CloseBefore, getEndpoint)), want: "unknown 1s"},
				{want: "201"},
			},
		})
	}
	return rows
}
