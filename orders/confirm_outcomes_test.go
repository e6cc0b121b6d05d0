package orders_test

import (
	"strings"

	"example.com/orders-api/payments/stripetest"
)

// requireAction leaves an intent that must be cancelled before the failure is stored (R23).
func requireAction(f *fixture) {
	f.do(payWith("pm_card_authenticationRequired"), offSession, stopBefore(confirm), confirmOnSession)
}

const declinedOffSession = "402 authentication_required authentication_required"

// Each call of an order fails in each way. The next run decides, unless the run itself could read the effect.
func callOutcomes() scenarios {
	table := scenarios{}
	for call, test := range map[string]struct {
		start  step
		run    func(want string) step
		final  string
		faults map[stripetest.Fault]string // the outcome of the run that meets it
	}{
		createIntent: {func(*fixture) {}, create, "201", map[stripetest.Fault]string{
			stripetest.CloseBefore:  "503 unavailable, 1s",
			stripetest.RateLimit:    "503 unavailable, 2s",
			stripetest.Unavailable:  "503 unavailable, 2s",
			stripetest.KeyInUse:     "503 unavailable, 2s",
			stripetest.CloseAfter:   "503 unavailable, 1s",
			stripetest.CutBody:      "503 unavailable, 2s",
			stripetest.BadGateway:   "503 unavailable, 2s",
			stripetest.Unauthorized: "503 unavailable, 1m0s",
		}},
		confirm: {func(*fixture) {}, create, "201", map[stripetest.Fault]string{ // unavailable only if no card was charged
			stripetest.CloseBefore:  "503 outcome unknown, 1s",
			stripetest.RateLimit:    "503 unavailable, 2s",
			stripetest.Unavailable:  "503 outcome unknown, 2s",
			stripetest.KeyInUse:     "503 outcome unknown, 2s",
			stripetest.CloseAfter:   "201",
			stripetest.CutBody:      "201",
			stripetest.BadGateway:   "201",
			stripetest.Unauthorized: "503 unavailable, 1m0s",
		}},
		getIntent: {stopBefore(confirm), retry, "201", map[stripetest.Fault]string{
			stripetest.CloseBefore:  "503 outcome unknown, 1s",
			stripetest.RateLimit:    "503 outcome unknown, 2s",
			stripetest.Unavailable:  "503 outcome unknown, 2s",
			stripetest.ErrorBefore:  "503 outcome unknown, 2s",
			stripetest.CutBody:      "503 outcome unknown, 2s",
			stripetest.Unauthorized: "503 outcome unknown, 1m0s",
		}},
		cancel: {requireAction, retry, declinedOffSession, map[stripetest.Fault]string{
			stripetest.CloseBefore:  "503 outcome unknown, 1s",
			stripetest.RateLimit:    "503 outcome unknown, 2s",
			stripetest.Unavailable:  "503 outcome unknown, 2s",
			stripetest.KeyInUse:     "503 outcome unknown, 2s",
			stripetest.CloseAfter:   "503 outcome unknown, 1s",
			stripetest.CutBody:      "503 outcome unknown, 2s",
			stripetest.Unauthorized: "503 outcome unknown, 1m0s",
		}},
	} {
		for kind, want := range test.faults {
			final := test.final
			if call == cancel && (kind == stripetest.CloseAfter || kind == stripetest.CutBody) {
				final = "422 payment_intent_canceled" // the reason was lost with the response
			}
			steps := []step{test.start, fault(kind, call), test.run(want)}
			if kind == stripetest.Unauthorized {
				steps = append(steps, expectAlert)
			}
			if strings.HasPrefix(want, "503") {
				steps = append(steps, retry(final))
			}
			table[string(kind)+" "+call] = steps
		}
	}
	return table
}

// Stripe replays an error that it has stored under a provider key, so the next key is used (R12).
func storedOutcomes() scenarios {
	table := scenarios{
		"confirm, stored before the effect, card declined": {
			payWith(declinedCard), faultOnce(stripetest.ErrorLater, confirm), create("402 card_declined generic_decline"),
		},
		"create, under every key": {
			fault(stripetest.ErrorBefore, createIntent), create("503 unavailable, 30s"),
			fault(stripetest.ErrorAfter, createIntent), retry("503 unavailable, 30s"),
			retry("201"),
			expectCalls("create 500, create-2 500, search 200, create-2 500, search 200, create-3 500, search 200, create-3 500, search 200, create-4 200, get 200, confirm 200"),
		},
		"confirm, under every key": {
			fault(stripetest.ErrorBefore, confirm), create("503 outcome unknown, 30s"),
			fault(stripetest.ErrorBefore, confirm), retry("503 outcome unknown, 30s"),
			retry("201"),
		},
		"cancel, under every key": {
			requireAction,
			fault(stripetest.ErrorBefore, cancel), retry("503 outcome unknown, 30s"),
			retry(declinedOffSession),
			expectCalls("get 200, cancel 500, get 200, cancel-2 500, get 200, cancel-2 500, get 200, cancel-3 200"),
		},
		"create, the account is not set up": {
			fault(stripetest.AccountNotReady, createIntent), create("503 unavailable, 1m0s"), expectAlert,
			fault(stripetest.AccountNotReady, createIntent), retry("503 unavailable, 1m0s"),
			retry("201"),
		},
		"confirm, the account is not set up": {
			fault(stripetest.AccountNotReady, confirm), create("503 unavailable, 1m0s"), expectAlert,
			fault(stripetest.AccountNotReady, confirm), retry("503 outcome unknown, 1m0s"),
			retry("201"),
		},
		"cancel, the account is not set up": {
			requireAction,
			fault(stripetest.AccountNotReady, cancel), retry("503 outcome unknown, 1m0s"), expectAlert,
			retry(declinedOffSession),
		},
		"confirm, stored after the effect, and the intent cannot be read": {
			fault(stripetest.ErrorAfter, confirm), fault(stripetest.ErrorBefore, getIntent), create("503 outcome unknown, 2s"), retry("201"),
		},
		"cancel, without an effect":    {requireAction, faultOnce(stripetest.ErrorBefore, cancel), retry(declinedOffSession)},
		"cancel, after the effect":     {requireAction, faultOnce(stripetest.ErrorAfter, cancel), retry("422 payment_intent_canceled")},
		"no error, so it is the first": {requireAction, retry(declinedOffSession), expectCalls("get 200, cancel 200")},
	}
	for _, kind := range []stripetest.Fault{stripetest.ErrorBefore, stripetest.ErrorAfter, stripetest.ErrorLater} {
		table["create, "+string(kind)] = []step{faultOnce(kind, createIntent), create("201"), expectCalls("create 500, create-2 200, confirm 200")}
		table["confirm, "+string(kind)] = []step{faultOnce(kind, confirm), create("201")}
	}
	return table
}

// The confirm may have charged the card, and the run cannot read whether it has.
func unreadOutcomes() scenarios {
	table := scenarios{
		"charged, and both responses lost": {
			loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"), expectCharges(1), retry("201"),
			expectCalls("create 200, confirm 0 ×3, get 0 ×3, get 200"),
		},
		"declined, and both responses lost": {
			payWith("pm_card_visa_chargeDeclinedStolenCard"),
			loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"), retry("402 card_declined stolen_card"),
		},
		"unauthorized on a retry": {
			loseRequest(confirm), create("503 outcome unknown, 1s"),
			fault(stripetest.Unauthorized, confirm), retry("503 outcome unknown, 1m0s"), expectAlert, retry("201"),
		},
		"rate limited on a retry": {
			loseRequest(confirm), create("503 outcome unknown, 1s"), rateLimit(confirm), retry("503 outcome unknown, 2s"), retry("201"),
		},
		"rate limited create, then an unknown payment method": {
			payWith("pm_nobody_knows"), rateLimit(createIntent), create("503 unavailable, 2s"), retry("422 resource_missing"),
		},
	}
	for _, kind := range []stripetest.Fault{stripetest.CutBody, stripetest.ErrorBefore, stripetest.ErrorLater} {
		table[string(kind)] = []step{fault(kind, confirm), makeUnavailable(getIntent), create("503 outcome unknown, 2s"), retry("201")}
	}
	return table
}
