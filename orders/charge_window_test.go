package orders_test

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

const (
	// After this age, the provider has forgotten an idempotency key.
	age = 25 * time.Hour

	notCreated = "422 payment_not_created"
)

func aDayAgo() time.Time { return time.Now().Add(-age) }

func challenge(f *fixture) { f.do(payWith(challengeCard), create("202 action required")) }

func old(f *fixture) { f.backdate(age) }

func inProcess(f *fixture) {
	f.do(payWith(stripetest.ProcessingCard), create("503 outcome unknown, 30s"))
}

func latePeriod(f *fixture) {
	f.do(pass(orders.CreatePeriod))
	f.transport.reset()
}

func lateWindow(f *fixture) {
	f.do(pass(23 * time.Hour))
	f.transport.reset()
}

// aDayLater is an order of a day ago, and what happens then.
type aDayLater struct{ past, now []step }

func runADayLater(t *testing.T, shared *fixture, tests map[string]aDayLater) {
	t.Helper()
	parts := map[string]*fixture{}
	for name, test := range tests {
		parts[name] = shared.withNewKey(t)
		parts[name].byCompleter = shared.byCompleter
		parts[name].do(test.past...)
	}
	shared.Stripe.Advance(age)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := parts[name]
			f.t = t
			f.backdate(age)
			f.transport.reset()
			f.do(test.now...)
			f.checkResponse()
		})
	}
	checkInvariants(t, shared)
}

// An old order keeps a result that the provider has; otherwise its intent is cancelled (R24). Nothing is created or
// confirmed.
func TestChargeWindow(t *testing.T) {
	t.Parallel()
	const over = "422 charge_window_over"
	ends := func(outcome string) step {
		return func(f *fixture) {
			f.t.Helper()
			f.do(retry(outcome))
			require.NotRegexp(f.t, "create|confirm", f.transport.calls())
			for _, intent := range f.intents() {
				require.Equal(f.t, outcome == "201", intent.Status == "succeeded", intent.Status)
				require.Contains(f.t, []string{"succeeded", "canceled"}, intent.Status)
			}
		}
	}
	shared := newFixture(t, options{clock: aDayAgo}, create("201"))
	runADayLater(t, shared, map[string]aDayLater{
		"no intent":                     {[]step{loseRequest(createIntent), create("503 unavailable, 1s")}, []step{ends(notCreated)}},
		"intent created, response lost": {[]step{loseResponse(createIntent), create("503 unavailable, 1s")}, []step{ends(over)}},
		"unconfirmed":                   {[]step{stopBefore(confirm)}, []step{ends(over)}},
		"charged, response lost":        {[]step{loseResponse(confirm, getIntent), create("503 outcome unknown, 1s")}, []step{ends("201")}},
		"charged by a run whose rows are lost": {
			[]step{loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"), loseIntent}, []step{ends("201")},
		},
		"declined, response lost": {
			[]step{payWith("pm_card_chargeDeclinedIncorrectCvc"), loseResponse(confirm, getIntent), create("503 outcome unknown, 1s")},
			[]step{ends("402 incorrect_cvc incorrect_cvc")},
		},
		"waits for the customer":    {[]step{challenge}, []step{ends(over)}},
		"approved in time":          {[]step{challenge, approve}, []step{ends("201")}},
		"not approved":              {[]step{challenge, failChallenge}, []step{ends("402 payment_intent_authentication_failure")}},
		"approved after our cancel": {[]step{challenge}, []step{after(cancel, customerCannotPay), ends(over)}},
		"paid with another card before our cancel arrives": {
			[]step{challenge, failChallenge}, []step{before(cancel, payWithOtherCard), ends("201")},
		},
		"charged before our cancel arrives": {[]step{stopBefore(confirm)}, []step{before(cancel, confirmAtProvider), ends("201")}},
	})
}

func TestChargeWindow_limit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for outcome, age := range map[string]time.Duration{
		"201":                    23*time.Hour - leaseDuration - 30*time.Second,
		"422 charge_window_over": 23*time.Hour - leaseDuration + time.Second,
	} {
		f := f.withNewKey(t)
		f.do(stopBefore(confirm))
		f.backdate(age)
		f.do(retry(outcome))
		f.checkFinal()
	}

	f = f.withNewKey(t) // an old key with a new order
	f.do(stopBefore(createIntent))
	f.exec("UPDATE idempotency_keys SET created_at = created_at - $1::interval", age)
	f.do(retry("201"))
}

func (f *fixture) readStatus(ctx context.Context) (result idempotency.Result, err error) {
	key, _, err := f.Engine.Lookup(ctx, f.Account, f.key)
	if err == nil && key.State() == idempotency.StateActionRequired {
		checker := f.Engine.Operation(key.Operation).(interface {
			CheckAction(ctx context.Context, key idempotency.StoredKey) error
		})
		if err = checker.CheckAction(ctx, key); err == nil {
			if _, err = f.Engine.Resume(ctx, f.Account, key.ID); err == nil || errors.Is(err, httpjson.ErrOutcomeUnknown) {
				key, _, err = f.Engine.Lookup(ctx, f.Account, f.key)
			}
		}
	}
	return result, cmp.Or(err, errors.New(key.State()))
}

// The completer ends the payment soon after the window, although the key has just run.
func TestChargeWindow_notApproved(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, challenge)
	f.backdate(23*time.Hour - leaseDuration + time.Second)
	f.ageLastRun(grace)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.runCompleter())
	f.do(create("422 charge_window_over"), expectIntents("canceled"))
	f.checkFinal()
}

func TestChargeWindow_endsDuringRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{chargeWindow: leaseDuration + 100*time.Millisecond})
	f.inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: createIntent, Delay: 200 * time.Millisecond})
	f.do(create("422 charge_window_over"), expectCalls("create 200, get 200, cancel 200"))
	f.checkFinal()
}

func newOldFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, options{clock: aDayAgo, chargeWindow: 3 * age})
}

// After a day, the same request would create another intent (R12). [TestChargeWindow] has more orders of a day ago.
func TestProviderKeyExpired(t *testing.T) {
	t.Parallel()
	shared := newOldFixture(t)
	shared.byCompleter = true
	runADayLater(t, shared, map[string]aDayLater{
		"create: response lost": {[]step{loseResponse(createIntent), create("503 unavailable, 1s")}, []step{
			retry("201"), expectIntents("succeeded"),
		}},
		"create: stored 500 under two keys": {[]step{fault(stripetest.ErrorAfter, createIntent), create("503 unavailable, 30s")}, []step{
			retry("201"), func(f *fixture) { require.Len(f.t, f.intents(), 2) },
		}},
		"confirm: request lost": {[]step{loseRequest(confirm), create("503 outcome unknown, 1s")}, []step{
			retry("201"), expectIntents("succeeded"),
		}},
		"payment in process for days": {[]step{inProcess}, []step{
			retry("503 outcome unknown, 30s"), paymentSucceeds,
			retry("201"), expectIntents("succeeded"),
		}},
	})
}

// Of several intents, the one counts that is charged, or may be. The search may return an old status.
func TestProviderKeyExpired_severalIntents(t *testing.T) {
	t.Parallel()
	tests := map[string]aDayLater{"one charged since it was listed": {
		[]step{loseRequest(createIntent), create("503 unavailable, 1s"), insertIntents(visa, visa)},
		[]step{func(f *fixture) { f.outOfBand("/v1/payment_intents/"+f.intents()[1].ID+"/confirm", nil) }, retry("201")},
	}}
	for name, test := range map[string]struct {
		card string
		act  string // confirm or cancel
		now  []step
	}{
		"one charged":         {visa, "confirm", []step{retry("201")}},
		"one declined":        {declinedCard, "confirm", []step{retry("402 card_declined generic_decline")}},
		"one cancelled":       {visa, "cancel", []step{retry("422 payment_intent_canceled")}},
		"one processing":      {stripetest.ProcessingCard, "confirm", []step{retry("503 outcome unknown, 30s"), paymentSucceeds, retry("201")}},
		"one requires action": {challengeCard, "confirm", []step{retry("202 action required"), approve, retry("201")}},
	} {
		act := func(f *fixture) { f.outOfBand("/v1/payment_intents/"+f.intents()[1].ID+"/"+test.act, nil) }
		tests[name] = aDayLater{
			[]step{loseRequest(createIntent), create("503 unavailable, 1s"), insertIntents(visa, test.card, visa), act}, test.now,
		}
	}
	runADayLater(t, newOldFixture(t), tests)
}

func insertIntents(cards ...string) step {
	return func(f *fixture) {
		f.t.Helper()
		for _, card := range cards {
			f.outOfBand("/v1/payment_intents", url.Values{
				"amount": {strconv.Itoa(orderAmount)}, "currency": {"usd"}, "payment_method": {card},
				"metadata[order_id]":                         {orderID(f.Account, f.key).String()},
				"automatic_payment_methods[enabled]":         {"true"},
				"automatic_payment_methods[allow_redirects]": {"never"},
			})
		}
	}
}

// An order without an intent ends after half an hour, but not before a search has found none (R12).
func TestCreatePeriod(t *testing.T) {
	t.Parallel()
	noIntent := []step{loseRequest(createIntent), create("503 unavailable, 1s")}
	for name, test := range map[string]struct {
		past    []step
		now     []step
		intents []string
	}{
		"no intent": {noIntent, []step{latePeriod, retry(notCreated), expectCalls("search 200")}, nil},
		"cancelled": {noIntent, []step{
			func(f *fixture) { f.exec("UPDATE orders SET cancel_requested_at = now()") },
			latePeriod, retry("422 canceled"), expectCalls("search 200"),
		}, nil},
		"the response was lost": {[]step{loseResponse(createIntent), create("503 unavailable, 1s")}, []step{
			latePeriod, retry("201"), expectCalls("search 200, get 200 ×2, confirm 200"),
		}, []string{"succeeded"}},
		"the search fails": {noIntent, []step{
			lateWindow, fault(stripetest.RateLimit, search), retry("503 unavailable, 2s"), retry(notCreated),
		}, nil},
		"no search, before the window is over": {noIntent, []step{
			latePeriod, fault(stripetest.NoSearch, search), retry("503 unavailable, 1m0s"), expectCalls("search 400"),
			lateWindow, fault(stripetest.NoSearch, search), retry(notCreated), expectCalls("search 400"),
		}, nil},
		"the API key is rejected": {noIntent, []step{
			latePeriod, fault(stripetest.Unauthorized, search), retry("503 unavailable, 1m0s"), expectCalls("search 401"),
			lateWindow, fault(stripetest.Unauthorized, search), retry(notCreated), expectCalls("search 401"),
		}, nil},
		"what the search finds cannot be read": {[]step{loseResponse(createIntent), create("503 unavailable, 1s")}, []step{
			lateWindow, fault(stripetest.Unauthorized, getIntent), retry("503 unavailable, 1m0s"),
			retry("422 charge_window_over"),
		}, []string{"canceled"}},
		"the account does not know our latest intent": {append([]step{func(f *fixture) {
			f.withNewKey(f.t).do(create("201"))
			f.exec("UPDATE orders SET payment_intent_id = 'pi_of_another_account'")
		}}, noIntent...), []step{
			latePeriod, retry("503 unavailable, 1m0s"), expectCalls("search 200, get 404"),
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{unchecked: true, clock: aDayAgo})
			f.do(test.past...)
			f.do(test.now...)
			f.do(expectIntents(test.intents...))
		})
	}
}

// While creates are sent, a resumed run repeats its create, and the provider returns the same intent.
func TestCreatePeriod_limit(t *testing.T) {
	t.Parallel()
	for calls, age := range map[string]time.Duration{
		"search 200, get 200, create 200, get 200, confirm 200": orders.CreatePeriod - leaseDuration - 30*time.Second,
		"search 200, get 200 ×2, confirm 200":                   orders.CreatePeriod - leaseDuration + time.Second,
	} {
		f := newFixture(t, options{clock: aDayAgo}, loseResponse(createIntent), create("503 unavailable, 1s"), pass(age))
		f.transport.reset()
		f.do(retry("201"), expectCalls(calls), expectIntents("succeeded"))
		f.checkFinal()
	}
}

// A create with other parameters was sent under the provider key, so an intent exists that the search may not find
// yet. The order fails only after an operator has dealt with it.
func TestCreatePeriod_otherParameters(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{clock: aDayAgo, unchecked: true})
	f.do(loseResponse(createIntent), create("503 unavailable, 1s"), loseRows, payWith("pm_card_mastercard"), create("503 unavailable, 1m0s"))
	f.do(expectCalls("create 400"))
	f.exec("UPDATE orders SET created_at = created_at - interval '1 hour'")
	f.do(retry("503 unavailable, 1m0s"), expectCalls("create 400, search 200"))
	open, err := jobs.Open(t.Context(), f.Pool)
	require.NoError(t, err)
	require.Len(t, open, 1)
	require.Equal(t, "create_with_other_parameters", open[0].LastError)
	_, err = jobs.DeleteFailed(t.Context(), f.Pool, open[0].ID, audit.Operator{Actor: "ada", Reason: "the intent was cancelled"})
	require.NoError(t, err)
	f.do(retry(notCreated))
}

// A charge window that is shorter ends the creates as well.
func TestCreatePeriod_shortWindow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{chargeWindow: 2 * leaseDuration}, loseRequest(createIntent), create("503 unavailable, 1s"))
	f.backdate(leaseDuration + time.Second)
	f.do(retry(notCreated))
	f.checkFinal()
}

// The customer may still pay, so no other intent is created.
func TestCreatePeriod_waits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{clock: aDayAgo}, challenge, loseIntent, pass(5*time.Minute))
	f.transport.reset()
	f.exec("UPDATE orders SET status = 'pending'")
	f.do(retry("202 action required"), expectCalls("search 200, get 200 ×2"))
	require.Len(t, f.intents(), 1)
}
