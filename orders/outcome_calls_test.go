package orders_test

import (
	"slices"

	"example.com/orders-api/payments/stripetest"
)

// createOutcomes: whatever happens, no money has moved.
func createOutcomes() []outcome {
	rows := []outcome{
		{
			name:  "a saved 500 without effect",
			tries: []try{{faults: once(stripetest.ErrorBefore, createEndpoint), want: "201"}},
			calls: "create 500, create-2 200, confirm 200",
		},
		{
			name:  "a saved 500 after the effect, which leaves an intent that nobody confirms",
			tries: []try{{faults: once(stripetest.ErrorAfter, createEndpoint), want: "201"}},
			calls: "create 500, create-2 200, confirm 200",
		},
		{
			name:  "a saved 500 whose effect comes later",
			tries: []try{{faults: once(stripetest.ErrorLater, createEndpoint), want: "201"}},
			calls: "create 500, create-2 200, confirm 200",
		},
		{
			name: "a 500 for every key",
			tries: []try{
				{faults: failing(stripetest.ErrorBefore, createEndpoint), want: "unavailable 30s"},
				{faults: failing(stripetest.ErrorAfter, createEndpoint), want: "unavailable 30s"},
				{want: "201"},
			},
			// Each run meets the 500 of the last one first.
			calls: "create 500, create-2 500 ×2, create-3 500 ×2, create-4 200, get 200, confirm 200",
		},
		{
			name: "a saved 500, then a payment method that is gone",
			card: "pm_nobody_knows",
			tries: []try{
				{faults: failing(stripetest.RateLimit, createEndpoint), want: "unavailable 2s"},
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
			name:  string(fault),
			tries: []try{{faults: failing(fault, createEndpoint), want: row.want}, {want: "201"}},
			calls: row.calls + ", get 200, confirm 200",
			alarm: fault == stripetest.Unauthorized,
		})
	}
	return rows
}

// confirmOutcomes: money may have moved.
func confirmOutcomes() []outcome {
	rows := []outcome{
		{
			name:  "a saved 500 without effect",
			tries: []try{{faults: once(stripetest.ErrorBefore, confirmEndpoint), want: "201"}},
			calls: "create 200, confirm 500, get 200 ×2, confirm-2 200",
		},
		{
			name:  "a saved 500 after the effect",
			tries: []try{{faults: once(stripetest.ErrorAfter, confirmEndpoint), want: "201"}},
			calls: "create 200, confirm 500, get 200",
		},
		{
			name:  "a saved 500 after the decline",
			card:  "pm_card_visa_chargeDeclinedLostCard",
			tries: []try{{faults: once(stripetest.ErrorAfter, confirmEndpoint), want: "402 card_declined lost_card"}},
			calls: "create 200, confirm 500, get 200",
		},
		{
			name:  "a saved 500 whose effect comes when the card is charged",
			tries: []try{{faults: once(stripetest.ErrorLater, confirmEndpoint), want: "201"}},
			calls: "create 200, confirm 500, get 200 ×2, confirm-2 200",
		},
		{
			name:  "a saved 500 whose effect comes when the card is declined",
			card:  "pm_card_visa_chargeDeclined",
			tries: []try{{faults: once(stripetest.ErrorLater, confirmEndpoint), want: "402 card_declined generic_decline"}},
			calls: "create 200, confirm 500, get 200 ×2, confirm-2 402",
		},
		{
			name: "a 500 for every key",
			tries: []try{
				{faults: failing(stripetest.ErrorBefore, confirmEndpoint), want: "unknown 30s"},
				{faults: failing(stripetest.ErrorBefore, confirmEndpoint), want: "unknown 30s"},
				{want: "201"},
			},
			calls: "create 200, confirm 500, get 200 ×2, confirm-2 500, get 200 ×2, " +
				"confirm-2 500, get 200 ×2, confirm-3 500, get 200 ×2, " +
				"confirm-3 500, get 200 ×2, confirm-4 200",
		},
		{
			name: "a saved 500 after the effect, and no word of the intent",
			tries: []try{
				{faults: slices.Concat(failing(stripetest.ErrorAfter, confirmEndpoint), failing(stripetest.ErrorBefore, getEndpoint)), want: "unknown 2s"},
				{want: "201"},
			},
			calls: "create 200, confirm 500, get 500 ×3, get 200",
		},
		{
			name: "charged, and neither answer arrives",
			tries: []try{
				{faults: failing(stripetest.CloseAfter, confirmEndpoint, getEndpoint), want: "unknown 1s"},
				{want: "201"},
			},
			calls: "create 200, confirm 0 ×3, get 0 ×3, get 200",
		},
		{
			name: "declined, and neither answer arrives",
			card: "pm_card_visa_chargeDeclinedStolenCard",
			tries: []try{
				{faults: failing(stripetest.CloseAfter, confirmEndpoint, getEndpoint), want: "unknown 1s"},
				{want: "402 card_declined stolen_card"},
			},
			calls: "create 200, confirm 0 ×3, get 0 ×3, get 200",
		},
	}
	// The card is charged and the answer lost: the intent tells.
	for fault, calls := range map[stripetest.Fault]string{
		stripetest.CloseAfter: "confirm 0 ×3",
		stripetest.ResetAfter: "confirm 0 ×3",
		stripetest.CutBody:    "confirm 200 ×3",
		stripetest.BadGateway: "confirm 502 ×3",
	} {
		rows = append(rows, outcome{
			name:  string(fault),
			tries: []try{{faults: failing(fault, confirmEndpoint), want: "201"}},
			calls: "create 200, " + calls + ", get 200",
		})
	}
	// The card is not charged. Where that is certain, the client is told.
	for fault, row := range map[stripetest.Fault]struct{ want, calls string }{
		stripetest.CloseBefore:  {"unknown 1s", "confirm 0 ×3, get 200 ×2"},
		stripetest.RateLimit:    {"unavailable 2s", "confirm 429 ×3, get 200"},
		stripetest.LockTimeout:  {"unavailable 1s", "confirm 429 ×3, get 200"},
		stripetest.Unauthorized: {"unavailable 1m0s", "confirm 401, get 200"},
		stripetest.Unavailable:  {"unknown 2s", "confirm 503 ×3, get 200 ×2"},
		stripetest.KeyInUse:     {"unknown 2s", "confirm 409 ×3, get 200 ×2"},
	} {
		rows = append(rows, outcome{
			name:  string(fault),
			tries: []try{{faults: failing(fault, confirmEndpoint), want: row.want}, {want: "201"}},
			calls: "create 200, " + row.calls + ", confirm 200",
			alarm: fault == stripetest.Unauthorized,
		})
	}
	// A retry cannot be certain: something may have happened before it.
	for fault, row := range map[stripetest.Fault]struct{ want, calls string }{
		stripetest.RateLimit:    {"unknown 2s", "confirm 429 ×3"},
		stripetest.Unauthorized: {"unknown 1m0s", "confirm 401"},
	} {
		rows = append(rows, outcome{
			name: string(fault) + " on a retry",
			tries: []try{
				{faults: failing(stripetest.CloseBefore, confirmEndpoint), want: "unknown 1s"},
				{faults: failing(fault, confirmEndpoint), want: row.want},
				{want: "201"},
			},
			calls: "create 200, confirm 0 ×3, get 200 ×2, " + row.calls + ", get 200 ×2, confirm 200",
			alarm: fault == stripetest.Unauthorized,
		})
	}
	return rows
}

// readOutcomes are about the question that a retry begins with.
func readOutcomes() []outcome {
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
				{faults: failing(stripetest.RateLimit, confirmEndpoint), want: "unavailable 2s"},
				{faults: failing(fault, getEndpoint), want: row.want},
				{want: "201"},
			},
			calls: "create 200, confirm 429 ×3, " + row.calls + ", confirm 200",
			alarm: fault == stripetest.Unauthorized,
		})
	}
	return rows
}

// cancelOutcomes are about an intent that waits for the card's owner, who is not
// there: it is cancelled before anybody is told so (R23).
func cancelOutcomes() []outcome {
	const (
		declined = "402 authentication_required authentication_required"
		canceled = "422 payment_intent_canceled" // and nobody heard why
	)
	rows := []outcome{
		waiting("it works", try{want: declined}, try{want: declined}, "cancel 200"),
		waiting("a saved 500 without effect",
			try{faults: once(stripetest.ErrorBefore, cancelEndpoint), want: declined}, try{want: declined},
			"cancel 500, get 200, cancel-2 200"),
		waiting("a saved 500 after the effect",
			try{faults: once(stripetest.ErrorAfter, cancelEndpoint), want: canceled}, try{want: canceled},
			"cancel 500, get 200"),
		waiting("a 500 for every key",
			try{faults: failing(stripetest.ErrorBefore, cancelEndpoint), want: "unknown 30s"}, try{want: declined},
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
		o := waiting(string(fault), try{faults: failing(fault, cancelEndpoint), want: row.want}, try{want: row.final}, row.calls)
		o.alarm = fault == stripetest.Unauthorized
		rows = append(rows, o)
	}
	return rows
}

// waiting is an outcome whose second try meets an intent that waits for the
// card's owner.
func waiting(name string, second, third try, calls string) outcome {
	second.before = authenticateBehind
	return outcome{
		name:  name,
		card:  "pm_card_authenticationRequired",
		tries: []try{{faults: failing(stripetest.RateLimit, confirmEndpoint), want: "unavailable 2s"}, second, third},
		calls: "create 200, confirm 429 ×3, get 200, " + calls,
	}
}

// silentOutcomes: sends that nobody answers. What is held goes on when the
// retry begins, so that the two meet.
func silentOutcomes() []outcome {
	var rows []outcome
	for _, fault := range []stripetest.Fault{stripetest.HoldArrival, stripetest.HoldRunning, stripetest.HoldResponse} {
		told := "unavailable 1s"
		if fault == stripetest.HoldRunning {
			told = "unavailable 2s" // the second send meets the first
		}
		rows = append(rows, outcome{
			name:  "create: " + string(fault),
			tries: []try{{faults: failing(fault, createEndpoint), want: told}, {want: "201"}},
		}, outcome{
			name: "confirm: " + string(fault),
			tries: []try{
				{faults: slices.Concat(failing(fault, confirmEndpoint), failing(stripetest.CloseBefore, getEndpoint)), want: "unknown 1s"},
				{want: "201"},
			},
		})
	}
	return rows
}
