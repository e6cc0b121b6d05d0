package orders_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

const (
	challengeCard = "pm_card_threeDSecure2Required"

	declinedOffSession = "402 authentication_required authentication_required"
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
		"declined":               {payWith("pm_card_chargeDeclinedExpiredCard"), create("402 expired_card expired_card")},
		"unknown payment method": {payWith("pm_nobody_knows"), create("422 resource_missing")},
		"declined too often, so no operator can help": {payWith(stripetest.DeclineLimitCard), create("402 card_decline_rate_limit_exceeded")},
		"processing, then succeeded": {inProcess, retry("503 outcome unknown, 30s"), paymentSucceeds, retry("201")},
		"processing, then failed":    {inProcess, paymentFails, retry("402 card_declined generic_decline")},
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

// requireAction leaves an intent that must be cancelled before the failure is stored (R23).
func requireAction(f *fixture) {
	f.do(payWith("pm_card_authenticationRequired"), offSession, stopBefore(confirm), confirmOnSession)
}

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

// anotherAccount sends all calls to another account of the provider until the next outcome, as a
// wrong API key does.
func anotherAccount(f *fixture) {
	f.t.Helper()
	server := httptest.NewServer(stripetest.New(stripetest.Options{}))
	f.t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	require.NoError(f.t, err)
	f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		req = req.Clone(req.Context())
		req.URL.Host, req.Host = at.Host, at.Host
		return next.RoundTrip(req)
	})
}

// Another account knows neither the payment method nor the intents. Its errors are not final.
func TestCreate_anotherAccount(t *testing.T) {
	t.Parallel()
	shared := newFixture(t, options{clock: aDayAgo}, create("201"))
	f := shared.withNewKey(t)
	known := f.outOfBand("/v1/payment_intents", url.Values{"amount": {"100"}, "currency": {"usd"}, "payment_method": {visa}})
	f.do(
		payWith(known.PaymentMethod),
		anotherAccount, create("503 unavailable, 1m0s"),
		retry("201"), expectCharges(1),
	)
	f = shared.withNewKey(t)
	f.do(payWith("pm_nobody_knows"), create("422 resource_missing"))

	f = shared.withNewKey(t)
	f.do(
		loseResponse(createIntent), create("503 unavailable, 1s"), pass(25*time.Hour),
		anotherAccount, retry("503 unavailable, 1m0s"),
		retry("422 charge_window_over"), expectIntents("canceled"),
	)
}
