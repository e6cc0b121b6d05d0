package orders_test

import (
	"strings"
	"testing"
	"time"

	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

const declinedOffSession = "402 authentication_required authentication_required"

type scenarios map[string][]Step

// Each scenario has one behaviour of the provider. If it has a retry, it runs twice: the
// client retries, or the completer resumes the key.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for group, table := range map[string]scenarios{
		"action":      actionOutcomes(),
		"cards":       cardOutcomes(),
		"calls":       callOutcomes(),
		"cancel":      cancelOutcomes(),
		"lost rows":   lostOutcomes(),
		"stored":      storedOutcomes(),
		"unread":      unreadOutcomes(),
		"out of band": outOfBandOutcomes(),
		"unexpected":  unexpectedOutcomes(),
	} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			shared := NewFixture(t, Setup{}, Create("201"))
			for name, steps := range table {
				t.Run(name, func(t *testing.T) {
					f := shared.WithNewKey(t)
					f.Run(steps)
					f.CheckResponse()
					if f.Retried {
						f = shared.WithNewKey(t)
						f.ByCompleter = true
						f.Run(steps)
						f.CheckResponse()
					}
				})
			}
			CheckInvariants(t, shared)
		})
	}
}

func cardOutcomes() scenarios {
	table := scenarios{
		"accepted":               {Create("201"), ExpectCalls("create 200, confirm 200")},
		"declined":               {PayWith("pm_card_chargeDeclinedExpiredCard"), Create("402 expired_card expired_card")},
		"unknown payment method": {PayWith("pm_nobody_knows"), Create("422 resource_missing")},
		"declined too often, so no operator can help": {PayWith(stripetest.DeclineLimitCard), Create("402 card_decline_rate_limit_exceeded")},
		"processing, then succeeded":                  {InProcess, Retry("503 outcome unknown, 30s"), PaymentSucceeds, Retry("201")},
		"processing, then failed":                     {InProcess, PaymentFails, Retry("402 card_declined generic_decline")},
	}
	for _, card := range challengeCards {
		table[card+", off-session"] = []Step{PayWith(card), OffSession, Create(declinedOffSession)}
	}
	return table
}

func outOfBandOutcomes() scenarios {
	return scenarios{
		"cancelled before the retry":           {StopBefore(Confirm), cancelAtProvider, Retry("422 payment_intent_canceled")},
		"cancelled before our confirm arrives": {Before(Confirm, cancelAtProvider), Create("422 payment_intent_canceled")},
		"confirmed before the retry":           {StopBefore(Confirm), confirmAtProvider, Retry("201")},
		"confirmed before our confirm arrives": {Before(Confirm, confirmAtProvider), Create("201")},
		"declined before the retry": {
			PayWith("pm_card_visa_chargeDeclinedLostCard"), StopBefore(Confirm), confirmAtProvider,
			Retry("402 card_declined lost_card"),
		},
		"declined and then cancelled": {
			PayWith("pm_card_visa_chargeDeclinedLostCard"), StopBefore(Confirm), confirmAtProvider, cancelAtProvider,
			Retry("402 card_declined lost_card"),
		},
		"approved before the retry":          {PayWith("pm_card_authenticationRequired"), StopBefore(Confirm), confirmOnSession, Approve, Retry("201")},
		"approved before our cancel arrives": {requireAction, Before(Cancel, Approve), Retry("201")},
		"not approved before our cancel arrives": {
			requireAction,
			Before(Cancel, FailChallenge), Retry("402 authentication_required authentication_required"),
		},
		"payment method used by another intent": {
			func(f *Fixture) {
				other := f.OutOfBand("/v1/payment_intents", "amount", "500", "currency", "usd", "payment_method", Visa, "payment_method_types[0]", "card")
				f.Do(PayWith(other.PaymentMethod), StopBefore(Confirm))
				f.OutOfBand("/v1/payment_intents/" + other.ID + "/confirm")
			},
			Retry("422 payment_refused"),
		},
	}
}

func unexpectedOutcomes() scenarios {
	const unconfirmed = `"status": "requires_confirmation"`
	return scenarios{
		"another amount, so the confirm is not sent": {
			StopBefore(Confirm),
			ReplaceInResponses(`"amount": 4300`, `"amount": 4400`, GetIntent), Retry("503 outcome unknown, 1m0s"), ExpectAlert,
			Retry("201"),
		},
		"another amount from the start": {
			ReplaceInResponses(`"amount": 4300`, `"amount": 4400`, CreateIntent), Create("503 unavailable, 1m0s"), ExpectAlert,
			Retry("201"),
		},
		"another order's charge": {
			StopBefore(Confirm), confirmAtProvider,
			ReplaceInResponses(`"order_id": "`, `"order_id": "not `, GetIntent), Retry("503 outcome unknown, 1m0s"), ExpectAlert,
			Retry("201"),
		},
		"another currency since the confirm": {
			ReplaceInResponses(`"currency": "usd"`, `"currency": "eur"`, Confirm, GetIntent), Create("503 outcome unknown, 1m0s"), ExpectAlert,
			Retry("201"),
		},
		"unknown status": {
			StopBefore(Confirm),
			ReplaceInResponses(unconfirmed, `"status": "resting"`, GetIntent), Retry("503 outcome unknown, 1m0s"), ExpectAlert,
			Retry("201"),
		},
		"action in an unknown form": {
			PayWith(ChallengeCard), ReplaceInResponses(`"client_secret"`, `"secret"`, Confirm), Create("503 outcome unknown, 1m0s"), ExpectAlert,
			Retry("202 action required"), Approve, Retry("201"),
		},
		"payment method dropped without an error": {
			StopBefore(Confirm),
			ReplaceInResponses(unconfirmed, `"status": "requires_payment_method"`, GetIntent), Retry("422 payment_method_missing"),
		},
		"create declined": {
			Respond(CreateIntent, 402, `"type":"card_error","code":"card_declined","decline_code":"fraudulent"`),
			Create("402 card_declined fraudulent"),
		},
		"create declined without a code, which a failed order requires": {Respond(CreateIntent, 402, `"type":"card_error"`), Create("402 card_declined")},
		"create refused because of a wrong parameter": {
			Respond(CreateIntent, 400, `"type":"invalid_request_error","code":"parameter_unknown","param":"amont"`),
			Create("503 unavailable, 1m0s"), ExpectAlert,
			Retry("201"),
		},
		"decline that leaves the intent unchanged": {
			Respond(Confirm, 402, `"type":"card_error","code":"card_declined","decline_code":"try_again_later"`),
			Create("402 card_declined try_again_later"),
		},
		"confirm refused because of a wrong parameter": {
			Respond(Confirm, 400, `"type":"invalid_request_error","code":"parameter_unknown","param":"of_session"`),
			Create("503 unavailable, 1m0s"), ExpectAlert,
			Retry("201"),
		},
		"confirm refused because of the intent's state": {
			Respond(Confirm, 400, `"type":"invalid_request_error","code":"payment_intent_unexpected_state"`),
			Create("201"),
		},
		"provider key used for another request": {
			Respond(Confirm, 400, `"type":"idempotency_error"`), Create("503 outcome unknown, 1m0s"), ExpectAlert,
			Retry("201"),
		},
		"intent unknown at the provider": {
			StopBefore(Confirm),
			Respond(GetIntent, 404, `"type":"invalid_request_error","code":"resource_missing","param":"intent"`),
			Retry("503 outcome unknown, 1m0s"), ExpectAlert,
			Retry("201"),
		},
		"cancel without an effect": {
			requireAction,
			ReplaceInResponses(`"status": "canceled"`, `"status": "requires_action"`, Cancel), Retry("503 outcome unknown, 1m0s"), ExpectAlert,
			Retry("422 payment_intent_canceled"),
		},
	}
}

var challengeCards = []string{
	ChallengeCard,
	"pm_card_authenticationRequired",
	"pm_card_authenticationRequiredOnSetup",
	"pm_card_authenticationRequiredChargeDeclinedInsufficientFunds",
}

func actionOutcomes() scenarios {
	const notApproved = "402 payment_intent_authentication_failure"
	return scenarios{
		"approved": {PayWith(ChallengeCard), Create("202 action required"), Retry("202 action required"), Approve, Retry("201")},
		"approved, and then declined": {
			PayWith("pm_card_authenticationRequiredChargeDeclinedInsufficientFunds"), Create("202 action required"),
			Approve, Retry("402 card_declined insufficient_funds"),
		},
		"not approved":                        {PayWith(ChallengeCard), Create("202 action required"), FailChallenge, Retry(notApproved)},
		"the response of the confirm is lost": {PayWith(ChallengeCard), LoseResponse(Confirm), Create("202 action required"), Approve, Retry("201")},
		"approved while the provider does not respond to us": {
			PayWith(ChallengeCard), Create("202 action required"),
			Approve, MakeUnavailable(GetIntent), Retry("503 outcome unknown, 2s"),
			Retry("201"),
		},
		"not approved, and the response of the cancel is lost": {
			PayWith(ChallengeCard), Create("202 action required"),
			FailChallenge, LoseResponse(Cancel), Retry("503 outcome unknown, 1s"),
			Retry(notApproved),
		},
		"paid with another card before our cancel arrives": {
			PayWith(ChallengeCard), Create("202 action required"),
			FailChallenge, Before(Cancel, payWithOtherCard), Retry("201"),
		},
		"another program replaces the card, and our confirm declines it": {
			PayWith(ChallengeCard), Create("202 action required"),
			FailChallenge, Fault(stripetest.ErrorBefore, Cancel), Retry("503 outcome unknown, 30s"),
			replaceCard(DeclinedCard), Retry("402 card_declined generic_decline"),
		},
	}
}

// requireAction leaves an intent that must be cancelled before the failure is stored (R23).
func requireAction(f *Fixture) {
	f.Do(PayWith("pm_card_authenticationRequired"), OffSession, StopBefore(Confirm), confirmOnSession)
}

// Each call of an order fails in each way. The next run decides, unless the run itself could read the effect.
func callOutcomes() scenarios {
	table := scenarios{}
	for call, test := range map[string]struct {
		start  Step
		run    func(want string) Step
		final  string
		faults map[stripetest.Fault]string // the outcome of the run that meets it
	}{
		CreateIntent: {func(*Fixture) {}, Create, "201", map[stripetest.Fault]string{
			stripetest.CloseBefore:  "503 unavailable, 1s",
			stripetest.RateLimit:    "503 unavailable, 2s",
			stripetest.Unavailable:  "503 unavailable, 2s",
			stripetest.KeyInUse:     "503 unavailable, 2s",
			stripetest.CloseAfter:   "503 unavailable, 1s",
			stripetest.CutBody:      "503 unavailable, 2s",
			stripetest.BadGateway:   "503 unavailable, 2s",
			stripetest.Unauthorized: "503 unavailable, 1m0s",
		}},
		Confirm: {func(*Fixture) {}, Create, "201", map[stripetest.Fault]string{ // unavailable only if no card was charged
			stripetest.CloseBefore:  "503 outcome unknown, 1s",
			stripetest.RateLimit:    "503 unavailable, 2s",
			stripetest.Unavailable:  "503 outcome unknown, 2s",
			stripetest.KeyInUse:     "503 outcome unknown, 2s",
			stripetest.CloseAfter:   "201",
			stripetest.CutBody:      "201",
			stripetest.BadGateway:   "201",
			stripetest.Unauthorized: "503 unavailable, 1m0s",
		}},
		GetIntent: {StopBefore(Confirm), Retry, "201", map[stripetest.Fault]string{
			stripetest.CloseBefore:  "503 outcome unknown, 1s",
			stripetest.RateLimit:    "503 outcome unknown, 2s",
			stripetest.Unavailable:  "503 outcome unknown, 2s",
			stripetest.ErrorBefore:  "503 outcome unknown, 2s",
			stripetest.CutBody:      "503 outcome unknown, 2s",
			stripetest.Unauthorized: "503 outcome unknown, 1m0s",
		}},
		Cancel: {requireAction, Retry, declinedOffSession, map[stripetest.Fault]string{
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
			if call == Cancel && (kind == stripetest.CloseAfter || kind == stripetest.CutBody) {
				final = "422 payment_intent_canceled" // the reason was lost with the response
			}
			steps := []Step{test.start, Fault(kind, call), test.run(want)}
			if kind == stripetest.Unauthorized {
				steps = append(steps, ExpectAlert)
			}
			if strings.HasPrefix(want, "503") {
				steps = append(steps, Retry(final))
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
			PayWith(DeclinedCard), FaultOnce(stripetest.ErrorLater, Confirm), Create("402 card_declined generic_decline"),
		},
		"create, under every key": {
			Fault(stripetest.ErrorBefore, CreateIntent), Create("503 unavailable, 30s"),
			Fault(stripetest.ErrorAfter, CreateIntent), Retry("503 unavailable, 30s"),
			Retry("201"),
			ExpectCalls("create 500, create-2 500, search 200, create-2 500, search 200, create-3 500, search 200, create-3 500, search 200, create-4 200, get 200, confirm 200"),
		},
		"confirm, under every key": {
			Fault(stripetest.ErrorBefore, Confirm), Create("503 outcome unknown, 30s"),
			Fault(stripetest.ErrorBefore, Confirm), Retry("503 outcome unknown, 30s"),
			Retry("201"),
		},
		"cancel, under every key": {
			requireAction,
			Fault(stripetest.ErrorBefore, Cancel), Retry("503 outcome unknown, 30s"),
			Retry(declinedOffSession),
			ExpectCalls("get 200, cancel 500, get 200, cancel-2 500, get 200, cancel-2 500, get 200, cancel-3 200"),
		},
		"create, the account is not set up": {
			Fault(stripetest.AccountNotReady, CreateIntent), Create("503 unavailable, 1m0s"), ExpectAlert,
			Fault(stripetest.AccountNotReady, CreateIntent), Retry("503 unavailable, 1m0s"),
			Retry("201"),
		},
		"confirm, the account is not set up": {
			Fault(stripetest.AccountNotReady, Confirm), Create("503 unavailable, 1m0s"), ExpectAlert,
			Fault(stripetest.AccountNotReady, Confirm), Retry("503 outcome unknown, 1m0s"),
			Retry("201"),
		},
		"cancel, the account is not set up": {
			requireAction,
			Fault(stripetest.AccountNotReady, Cancel), Retry("503 outcome unknown, 1m0s"), ExpectAlert,
			Retry(declinedOffSession),
		},
		"confirm, stored after the effect, and the intent cannot be read": {
			Fault(stripetest.ErrorAfter, Confirm), Fault(stripetest.ErrorBefore, GetIntent), Create("503 outcome unknown, 2s"), Retry("201"),
		},
		"cancel, without an effect":    {requireAction, FaultOnce(stripetest.ErrorBefore, Cancel), Retry(declinedOffSession)},
		"cancel, after the effect":     {requireAction, FaultOnce(stripetest.ErrorAfter, Cancel), Retry("422 payment_intent_canceled")},
		"no error, so it is the first": {requireAction, Retry(declinedOffSession), ExpectCalls("get 200, cancel 200")},
	}
	for _, kind := range []stripetest.Fault{stripetest.ErrorBefore, stripetest.ErrorAfter, stripetest.ErrorLater} {
		table["create, "+string(kind)] = []Step{FaultOnce(kind, CreateIntent), Create("201"), ExpectCalls("create 500, create-2 200, confirm 200")}
		table["confirm, "+string(kind)] = []Step{FaultOnce(kind, Confirm), Create("201")}
	}
	return table
}

// The confirm may have charged the card, and the run cannot read whether it has.
func unreadOutcomes() scenarios {
	table := scenarios{
		"charged, and both responses lost": {
			LoseResponse(Confirm, GetIntent), Create("503 outcome unknown, 1s"), ExpectCharges(1), Retry("201"),
			ExpectCalls("create 200, confirm 0 ×3, get 0 ×3, get 200"),
		},
		"declined, and both responses lost": {
			PayWith("pm_card_visa_chargeDeclinedStolenCard"),
			LoseResponse(Confirm, GetIntent), Create("503 outcome unknown, 1s"), Retry("402 card_declined stolen_card"),
		},
		"unauthorized on a retry": {
			LoseRequest(Confirm), Create("503 outcome unknown, 1s"),
			Fault(stripetest.Unauthorized, Confirm), Retry("503 outcome unknown, 1m0s"), ExpectAlert, Retry("201"),
		},
		"rate limited on a retry": {
			LoseRequest(Confirm), Create("503 outcome unknown, 1s"), RateLimit(Confirm), Retry("503 outcome unknown, 2s"), Retry("201"),
		},
		"rate limited create, then an unknown payment method": {
			PayWith("pm_nobody_knows"), RateLimit(CreateIntent), Create("503 unavailable, 2s"), Retry("422 resource_missing"),
		},
	}
	for _, kind := range []stripetest.Fault{stripetest.CutBody, stripetest.ErrorBefore, stripetest.ErrorLater} {
		table[string(kind)] = []Step{Fault(kind, Confirm), MakeUnavailable(GetIntent), Create("503 outcome unknown, 2s"), Retry("201")}
	}
	return table
}

// Another account knows neither the payment method nor the intents. Its errors are not final.
func TestCreate_anotherAccount(t *testing.T) {
	t.Parallel()
	shared := NewFixture(t, Setup{Clock: aDayAgo}, Create("201"))
	f := shared.WithNewKey(t)
	known := f.OutOfBand("/v1/payment_intents", "amount", "100", "currency", "usd", "payment_method", Visa)
	f.Do(
		PayWith(known.PaymentMethod),
		AnotherAccount, Create("503 unavailable, 1m0s"),
		Retry("201"), ExpectCharges(1),
	)
	f = shared.WithNewKey(t)
	f.Do(PayWith("pm_nobody_knows"), Create("422 resource_missing"))

	f = shared.WithNewKey(t)
	f.Do(
		LoseResponse(CreateIntent), Create("503 unavailable, 1s"), pass(25*time.Hour),
		AnotherAccount, Retry("503 unavailable, 1m0s"),
		Retry("422 charge_window_over"), expectIntents("canceled"),
	)
}
