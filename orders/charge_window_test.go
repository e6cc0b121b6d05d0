package orders_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// An order that is older than the charge window is never charged (R24). It keeps a
// result that the provider has; otherwise its intent is cancelled.
func TestChargeWindow(t *testing.T) {
	t.Parallel()
	const over = "422 charge_window_over"
	shared := newFixture(t, options{clock: aDayAgo})
	tests := map[string]struct {
		past    []step // a day ago
		now     step   // during the retry
		outcome string
		calls   string
		intents []string // their status in the end
	}{
		"no intent": {past: []step{loseRequest(createIntent), create("503 unavailable, 1s")}, outcome: over, calls: "search 200, list 200"},
		"intent created, response lost": {
			past:    []step{loseResponse(createIntent), create("503 unavailable, 1s")},
			outcome: over, calls: "search 200, get 200, list 200, get 200, cancel 200", intents: []string{"canceled"},
		},
		"account not set up for the create": {
			past:    []step{fault(stripetest.AccountNotReady, createIntent), create("503 unavailable, 1m0s")},
			outcome: over, calls: "search 200, list 200",
		},
		"account not set up for the confirm": {
			past:    []step{fault(stripetest.AccountNotReady, confirm), create("503 unavailable, 1m0s")},
			outcome: over, calls: "get 200, cancel 200", intents: []string{"canceled"},
		},
		"unconfirmed": {past: []step{stopBefore(confirm)}, outcome: over, calls: "get 200, cancel 200", intents: []string{"canceled"}},
		"charged, response lost": {
			past:    []step{loseResponse(confirm, getIntent), create("503 outcome unknown, 1s")},
			outcome: "201", calls: "get 200", intents: []string{"succeeded"},
		},
		"charged by a run whose rows are lost": {
			past:    []step{loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"), loseIntent},
			outcome: "201", calls: "search 200, get 200 ×2", intents: []string{"succeeded"},
		},
		"declined, response lost": {
			past: []step{
				payWith("pm_card_chargeDeclinedIncorrectCvc"), loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"),
			},
			outcome: "402 incorrect_cvc incorrect_cvc", calls: "get 200, cancel 200", intents: []string{"canceled"},
		},
		"waits for the customer": {past: []step{challenge}, outcome: over, calls: "get 200, cancel 200", intents: []string{"canceled"}},
		"approved in time":       {past: []step{challenge, approve}, outcome: "201", calls: "get 200", intents: []string{"succeeded"}},
		"not approved": {
			past:    []step{challenge, failChallenge},
			outcome: "402 payment_intent_authentication_failure", calls: "get 200, cancel 200", intents: []string{"canceled"},
		},
		"approved before our cancel arrives": {
			past: []step{challenge}, now: before(cancel, approve),
			outcome: "201", calls: "get 200, cancel 400, get 200", intents: []string{"succeeded"},
		},
		"approved after our cancel": {
			past: []step{challenge}, now: after(cancel, customerCannotPay),
			outcome: over, calls: "get 200, cancel 200", intents: []string{"canceled"},
		},
		"not approved before our cancel arrives": {
			past: []step{challenge}, now: before(cancel, failChallenge),
			outcome: over, calls: "get 200, cancel 200", intents: []string{"canceled"},
		},
		"paid with another card before our cancel arrives": {
			past: []step{challenge, failChallenge}, now: before(cancel, payWithOtherCard),
			outcome: "201", calls: "get 200, cancel 400, get 200", intents: []string{"succeeded"},
		},
		"requires action, and no run has seen it": {
			past:    []step{payWith(challengeCard), stopBefore(confirm), confirmOnSession},
			outcome: over, calls: "get 200, cancel 200", intents: []string{"canceled"},
		},
		"cancelled by a killed run": {
			past:    []step{stopBefore(confirm), cancelAtProvider},
			outcome: over, calls: "get 200", intents: []string{"canceled"},
		},
		"charged before our cancel arrives": {
			past: []step{stopBefore(confirm)}, now: before(cancel, confirmAtProvider),
			outcome: "201", calls: "get 200, cancel 400, get 200", intents: []string{"succeeded"},
		},
	}
	parts := map[string]*fixture{}
	for name, test := range tests {
		parts[name] = shared.withNewKey(t)
		parts[name].do(test.past...)
	}
	shared.stripe.Advance(age)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := parts[name].nextDay(t)
			if test.now != nil {
				f.do(test.now)
			}
			f.do(retry(test.outcome), expectCalls(test.calls), expectIntents(test.intents...))
			f.checkResponse()
		})
	}
	checkInvariants(t, shared)
}

func aDayAgo() time.Time { return time.Now().Add(-age) }

func challenge(f *fixture) { f.do(payWith(challengeCard), create("202 action required")) }

// The charge window applies to each way to run a key. A payment in process is followed,
// however old the order is.
func TestChargeWindow_everyRun(t *testing.T) {
	t.Parallel()
	shared := newFixture(t, options{})
	for name, run := range map[string]func(want string) step{
		"retry": retry,
		"completer": func(want string) step {
			return func(f *fixture) {
				f.ageLastRun(30 * grace)
				f.runCompleter()
				f.do(create(want))
			}
		},
		"webhook": func(want string) step {
			return func(f *fixture) {
				require.Equal(f.t, want, eventOutcome(f.deliverEventAbout("payment_intent.created", map[string]any{
					"object": "payment_intent", "id": "pi_1", "metadata": f.metadata(),
				})))
			}
		},
		"keys retry": func(want string) step {
			return func(f *fixture) {
				f.markNeedsReview()
				f.do(retryByOperator(want))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, steps := range [][]step{
				{stopBefore(confirm), old, run("422 charge_window_over")},
				{loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"), old, run("201")},
				{inProcess, old, run("503 outcome unknown, 30s"), paymentSucceeds, run("201")},
				{inProcess, old, run("503 outcome unknown, 30s"), paymentFails, run("402 card_declined generic_decline")},
			} {
				f := shared.withNewKey(t)
				f.do(steps...)
				f.checkFinal()
			}
		})
	}
}

func old(f *fixture) { f.backdate(age) }

func inProcess(f *fixture) {
	f.do(payWith(stripetest.ProcessingCard), create("503 outcome unknown, 30s"))
}

// The failure is stored only after the cancel has succeeded (R23).
func TestChargeWindow_noOutcome(t *testing.T) {
	t.Parallel()
	shared := newFixture(t, options{})
	for name, test := range map[string]struct {
		before  string // the call before which the order stopped
		fault   step
		outcome string
		calls   string
	}{
		"list unavailable":        {createIntent, makeUnavailable(listIntents), "503 unavailable, 2s", "search 200, list 503 ×3, search 200, list 200"},
		"get unavailable":         {confirm, makeUnavailable(getIntent), "503 outcome unknown, 2s", "get 503 ×3, get 200, cancel 200"},
		"cancel unavailable":      {confirm, makeUnavailable(cancel), "503 outcome unknown, 2s", "get 200, cancel 503 ×3, get 200, cancel 200"},
		"cancel's response lost":  {confirm, loseResponse(cancel), "503 outcome unknown, 1s", "get 200, cancel 0 ×3, get 200"},
		"cancel has a stored 500": {confirm, fault(stripetest.ErrorBefore, cancel), "503 outcome unknown, 30s", "get 200, cancel 500, get 200, cancel-2 500, get 200, cancel-2 500, get 200, cancel-3 200"},
	} {
		t.Run(name, func(t *testing.T) {
			f := shared.withNewKey(t)
			f.do(stopBefore(test.before), old, test.fault, retry(test.outcome))
			require.Equal(t, orders.StatusPending, f.getOrder().Status)
			f.do(retry("422 charge_window_over"), expectCalls(test.calls))
			f.checkFinal()
		})
	}
}

// The window begins with the order, and a lease must end within it.
func TestChargeWindow_limit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for outcome, age := range map[string]time.Duration{
		"201":                    24*time.Hour - lockTimeout - 30*time.Second,
		"422 charge_window_over": 24*time.Hour - lockTimeout + time.Second,
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

func readStatus(want string) step {
	return func(f *fixture) {
		f.t.Helper()
		f.expect(want, func(f *fixture) (idempotency.Result, error) { return f.readStatus(f.t.Context()) })
	}
}

// readStatus reads the status of the key, as a client does that does not send its request
// again. The error is the action of the customer, if one is required, or else the state.
func (f *fixture) readStatus(ctx context.Context) (result idempotency.Result, err error) {
	status, err := f.service.KeyStatus(ctx, f.account, f.key)
	if err == nil && status.State() == idempotency.StateActionRequired {
		var required *orders.ActionRequiredError
		if required, err = f.service.RequiredAction(ctx, status); required != nil {
			return result, required
		}
		if err == nil {
			status, err = f.service.KeyStatus(ctx, f.account, f.key)
		}
	}
	return result, cmp.Or(err, errors.New(status.State()))
}

// After the charge window a client secret is useless: reading the status ends the order.
func TestChargeWindow_status(t *testing.T) {
	t.Parallel()
	shared := newFixture(t, options{})
	const over = "422 charge_window_over"
	for name, test := range map[string]struct {
		steps   []step
		outcome string
		calls   string
	}{
		"waits for the customer":             {[]step{readStatus("finished")}, over, "get 200, cancel 200"},
		"approved":                           {[]step{approve, readStatus("finished")}, "201", "get 200"},
		"approved before our cancel arrives": {[]step{before(cancel, approve), readStatus("finished")}, "201", "get 200, cancel 400, get 200"},
		"approved after our cancel":          {[]step{after(cancel, customerCannotPay), readStatus("finished")}, over, "get 200, cancel 200"},
		"get unavailable": {
			[]step{makeUnavailable(getIntent), readStatus("waiting"), readStatus("waiting")},
			over, "get 503 ×3, get 200, cancel 200",
		},
		"cancel unavailable": {
			[]step{makeUnavailable(cancel), readStatus("waiting")},
			over, "get 200, cancel 503 ×3, get 200, cancel 200",
		},
		"another run has the key": {
			[]step{before(cancel, requireNoAction), readStatus("finished")}, over, "get 200, cancel 200",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := shared.withNewKey(t)
			f.do(challenge, readStatus("202 action required"))
			f.backdate(age)
			f.transport.reset()
			f.do(test.steps...)
			f.do(create(test.outcome), expectCalls(test.calls))
			f.checkFinal()
		})
	}
}

// requireNoAction reads the action while another run ends the order.
func requireNoAction(f *fixture) {
	status, err := f.service.KeyStatus(f.t.Context(), f.account, f.key)
	require.NoError(f.t, err)
	required, err := f.service.RequiredAction(f.t.Context(), status)
	require.NoError(f.t, err)
	require.Nil(f.t, required)
}

// The status gives out an action exactly as long as a run would.
func TestChargeWindow_statusLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for outcome, age := range map[string]time.Duration{
		"202 action required": 24*time.Hour - lockTimeout - 30*time.Second,
		"finished":            24*time.Hour - lockTimeout + time.Second,
	} {
		f := f.withNewKey(t)
		f.do(challenge)
		f.exec("UPDATE orders SET created_at = created_at - $2::interval WHERE id = $1", orderID(f.account, f.key), age)
		f.do(readStatus(outcome))
	}
}

// A newer version may know what to do: this one neither ends the order nor gives out its
// action.
func TestChargeWindow_statusOfNewerVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, challenge)
	f.backdate(age)
	f.exec("UPDATE idempotency_keys SET recovery_point = 'action_announced'")
	row := f.keyRow()
	status, err := f.service.KeyStatus(t.Context(), f.account, f.key)
	require.NoError(t, err)
	required, err := f.service.RequiredAction(t.Context(), status)
	require.ErrorIs(t, err, idempotency.ErrNewerVersion)
	require.Nil(t, required)
	require.Equal(t, row, f.keyRow())
}

// A key of an operation that this version does not know has no order to read (R18).
func TestRequiredAction_unknownOperation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, challenge)
	f.exec("UPDATE idempotency_keys SET operation = 'create_subscription'")
	row := f.keyRow()
	status, err := f.service.KeyStatus(t.Context(), f.account, f.key)
	require.NoError(t, err)
	required, err := f.service.RequiredAction(t.Context(), status)
	require.NoError(t, err)
	require.Nil(t, required)
	require.Equal(t, row, f.keyRow())
}

// The window ends while a run confirms a payment that requires an action.
func TestChargeWindow_endsBeforeAction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{chargeWindow: lockTimeout + time.Second})
	f.inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: confirm, Delay: time.Second})
	f.do(payWith(challengeCard), create("422 charge_window_over"), expectCalls("create 200, confirm 200, get 200, cancel 200"))
	f.checkFinal()
}

// The customer never approves, and the client does not return: the completer ends the
// payment soon after the window, although the key ran a short time ago.
func TestChargeWindow_notApproved(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, challenge)
	f.backdate(24*time.Hour - lockTimeout + time.Second)
	f.ageLastRun(grace)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.runCompleter())
	f.do(create("422 charge_window_over"), expectIntents("canceled"))
	f.checkFinal()
}

// The window ends between the create and the confirm of one run.
func TestChargeWindow_endsDuringRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{chargeWindow: lockTimeout + 100*time.Millisecond})
	f.inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: createIntent, Delay: 200 * time.Millisecond})
	f.do(create("422 charge_window_over"), expectCalls("create 200, get 200, cancel 200"))
	f.checkFinal()
}

func TestChargeWindow_refund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa))
	f.do(rateLimit(makeRefund), refund("503 unavailable, 2s"))
	f.exec("UPDATE idempotency_keys SET created_at = created_at - interval '9 days'")
	f.exec("UPDATE orders SET created_at = created_at - interval '9 days'")
	f.do(retry("201"))
}
