package orders_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/payments/stripetest"
)

// An old order keeps a result that the provider has; otherwise its intent is cancelled (R24).
func TestChargeWindow(t *testing.T) {
	t.Parallel()
	const over = "422 charge_window_over"
	shared := newFixture(t, options{clock: aDayAgo}, create("201"))
	tests := map[string]struct {
		past    []step // a day ago
		now     step   // during the retry
		outcome string
		calls   string
		intents []string // their status in the end
	}{
		"no intent": {past: []step{loseRequest(createIntent), create("503 unavailable, 1s")}, outcome: notCreated, calls: "search 200, get 200"},
		"intent created, response lost": {
			past:    []step{loseResponse(createIntent), create("503 unavailable, 1s")},
			outcome: over, calls: "search 200, get 200 ×2, cancel 200", intents: []string{"canceled"},
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
		"approved after our cancel": {
			past: []step{challenge}, now: after(cancel, customerCannotPay),
			outcome: over, calls: "get 200, cancel 200", intents: []string{"canceled"},
		},
		"paid with another card before our cancel arrives": {
			past: []step{challenge, failChallenge}, now: before(cancel, payWithOtherCard),
			outcome: "201", calls: "get 200, cancel 400, get 200", intents: []string{"succeeded"},
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
	shared.Stripe.Advance(age)
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

func old(f *fixture) { f.backdate(age) }

func inProcess(f *fixture) {
	f.do(payWith(stripetest.ProcessingCard), create("503 outcome unknown, 30s"))
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
