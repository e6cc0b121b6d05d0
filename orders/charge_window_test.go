package orders_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// windowRuns are the ways to run a key. Each returns the outcome.
func windowRuns() map[string]func(f *fixture, card string) string {
	return map[string]func(*fixture, string) string{
		"retry": func(f *fixture, card string) string { return outcomeOf(f.create(card)) },
		"completer": func(f *fixture, card string) string {
			f.ageLastRun(30 * grace)
			if f.runCompleter().Completed == 0 {
				return outcomeOf(f.create(card)) // for the error
			}
			return outcomeOf(f.resume())
		},
		"webhook": func(f *fixture, _ string) string {
			return eventOutcome(f.deliverEventAbout("payment_intent.created", map[string]any{
				"object": "payment_intent", "id": "pi_1", "metadata": f.metadata(),
			}))
		},
		"keys retry": func(f *fixture, _ string) string {
			f.markNeedsReview()
			return outcomeOf(f.retry())
		},
	}
}

// An order that is older than the charge window is never charged (R24). It keeps a
// result that the provider has; otherwise its intent is cancelled.
func TestChargeWindow(t *testing.T) {
	t.Parallel()
	const over = "422 charge_window_over"
	during := func(want string, rules ...[]stripetest.Rule) func(*fixture, string) {
		return func(f *fixture, card string) {
			var faults []stripetest.Rule
			for _, rule := range rules {
				faults = append(faults, rule...)
			}
			require.Equal(f.t, want, outcomeOf(f.createDuring(card, faults)))
		}
	}
	stopped := func(f *fixture, card string) { f.interrupt(confirmEndpoint, card) }
	challenged := during("action required")
	answered := func(approve bool) func(*fixture, string) {
		return func(f *fixture, card string) {
			challenged(f, card)
			authenticate(approve)(f)
		}
	}
	for name, test := range map[string]struct {
		card   string // visa when empty
		leave  func(f *fixture, card string)
		around func(*fixture) interceptor // during the runs
		want   string
		calls  string
		intent string // its status in the end, "" if there is none
	}{
		"no intent": {
			leave: during("unavailable 1s", always(stripetest.CloseBefore, createEndpoint)),
			want:  over, calls: "list 200",
		},
		"intent created, response lost": {
			leave: during("unavailable 1s", always(stripetest.CloseAfter, createEndpoint)),
			want:  over, calls: "list 200, get 200, cancel 200", intent: "canceled",
		},
		"account not set up for the create": {
			leave: during("unavailable 1m0s", always(stripetest.AccountNotReady, createEndpoint)),
			want:  over, calls: "list 200",
		},
		"account not set up for the confirm": {
			leave: during("unavailable 1m0s", always(stripetest.AccountNotReady, confirmEndpoint)),
			want:  over, calls: "get 200, cancel 200", intent: "canceled",
		},
		"unconfirmed": {
			leave: stopped,
			want:  over, calls: "get 200, cancel 200", intent: "canceled",
		},
		"charged, response lost": {
			leave: during("unknown 1s", always(stripetest.CloseAfter, confirmEndpoint, getEndpoint)),
			want:  "201", calls: "get 200", intent: "succeeded",
		},
		"charged by a run whose rows are lost": {
			leave: func(f *fixture, card string) {
				during("unknown 1s", always(stripetest.CloseAfter, confirmEndpoint, getEndpoint))(f, card)
				f.exec("UPDATE idempotency_keys SET recovery_point = 'order_created'")
				f.exec("UPDATE orders SET payment_intent_id = NULL")
			},
			want: "201", calls: "list 200, get 200", intent: "succeeded",
		},
		"declined, response lost": {
			card:  "pm_card_chargeDeclinedIncorrectCvc",
			leave: during("unknown 1s", always(stripetest.CloseAfter, confirmEndpoint, getEndpoint)),
			want:  "402 incorrect_cvc incorrect_cvc", calls: "get 200, cancel 200", intent: "canceled",
		},
		"waits for the customer": {
			card: challengeCard, leave: challenged,
			want: over, calls: "get 200, cancel 200", intent: "canceled",
		},
		"approved in time": {
			card: challengeCard, leave: answered(true),
			want: "201", calls: "get 200", intent: "succeeded",
		},
		"not approved": {
			card: challengeCard, leave: answered(false),
			want: "402 payment_intent_authentication_failure", calls: "get 200, cancel 200", intent: "canceled",
		},
		"approved before our cancel arrives": {
			card: challengeCard, leave: challenged,
			around: beforeCall("cancel", authenticate(true)),
			want:   "201", calls: "get 200, cancel 400, get 200", intent: "succeeded",
		},
		"approved after our cancel": {
			card: challengeCard, leave: challenged,
			around: afterCall("cancel", customerFails),
			want:   over, calls: "get 200, cancel 200", intent: "canceled",
		},
		"not approved before our cancel arrives": {
			card: challengeCard, leave: challenged,
			around: beforeCall("cancel", authenticate(false)),
			want:   over, calls: "get 200, cancel 200", intent: "canceled",
		},
		"paid with another card before our cancel arrives": {
			card: challengeCard, leave: answered(false),
			around: beforeCall("cancel", payAsCustomer),
			want:   "201", calls: "get 200, cancel 400, get 200", intent: "succeeded",
		},
		"requires action, and no run has seen it": {
			card: challengeCard,
			leave: func(f *fixture, card string) {
				stopped(f, card)
				confirmOnSession(f)
			},
			want: over, calls: "get 200, cancel 200", intent: "canceled",
		},
		"cancelled by a run that died": {
			leave: func(f *fixture, card string) {
				stopped(f, card)
				cancelAtProvider(f)
			},
			want: over, calls: "get 200", intent: "canceled",
		},
		"charged before our cancel arrives": {
			leave:  stopped,
			around: beforeCall("cancel", confirmAtProvider),
			want:   "201", calls: "get 200, cancel 400, get 200", intent: "succeeded",
		},
	} {
		for by, run := range windowRuns() {
			t.Run(name+", "+by, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, options{clock: func() time.Time { return time.Now().Add(-age) }})
				card := visa
				if test.card != "" {
					card = test.card
				}
				test.leave(f, card)
				f.passDay()
				if test.around != nil {
					f.transport.intercept(test.around(f))
				}
				require.Equal(t, test.want, run(f, card))
				f.transport.intercept(nil)
				require.Equal(t, test.calls, f.transport.calls())
				var status string
				for _, intent := range f.intents() {
					status += intent.Status
				}
				require.Equal(t, test.intent, status)
				f.checkFinal()
			})
		}
	}
}

// A payment in process is followed, however old the order is.
func TestChargeWindow_processing(t *testing.T) {
	t.Parallel()
	for by, run := range windowRuns() {
		for want, success := range map[string]bool{"201": true, "402 card_declined generic_decline": false} {
			t.Run(by+", "+want, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, options{})
				require.Equal(t, "unknown 30s", outcomeOf(f.create(stripetest.ProcessingCard)))
				f.backdate(age)
				require.Equal(t, "unknown 30s", run(f, stripetest.ProcessingCard))
				require.Equal(t, orders.StatusPending, f.getOrder().Status)
				settlePayment(success)(f)
				require.Equal(t, want, run(f, stripetest.ProcessingCard))
				f.checkFinal()
			})
		}
	}
}

// The failure is stored only once the cancel has succeeded (R23).
func TestChargeWindow_undecided(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		endpoint string
		faults   []stripetest.Rule
		want     string
		calls    string
	}{
		"list unavailable":        {createEndpoint, always(stripetest.Unavailable, listEndpoint), "unavailable 2s", "list 503 ×3, list 200"},
		"get unavailable":         {confirmEndpoint, always(stripetest.Unavailable, getEndpoint), "unknown 2s", "get 503 ×3, get 200, cancel 200"},
		"cancel unavailable":      {confirmEndpoint, always(stripetest.Unavailable, cancelEndpoint), "unknown 2s", "get 200, cancel 503 ×3, get 200, cancel 200"},
		"cancel's response lost":  {confirmEndpoint, always(stripetest.CloseAfter, cancelEndpoint), "unknown 1s", "get 200, cancel 0 ×3, get 200"},
		"cancel has a stored 500": {confirmEndpoint, always(stripetest.ErrorBefore, cancelEndpoint), "unknown 30s", "get 200, cancel 500, get 200, cancel-2 500, get 200, cancel-2 500, get 200, cancel-3 200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			f.interrupt(test.endpoint, visa)
			f.backdate(age)
			require.Equal(t, test.want, outcomeOf(f.createDuring(visa, test.faults)))
			require.Equal(t, orders.StatusPending, f.getOrder().Status)
			require.Equal(t, "422 charge_window_over", outcomeOf(f.create(visa)))
			require.Equal(t, test.calls, f.transport.calls())
			f.checkFinal()
		})
	}
}

func TestChargeWindow_response(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.interrupt(confirmEndpoint, visa)
	f.backdate(age)
	result, err := f.create(visa)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnprocessableEntity, result.Response.Status)
	require.JSONEq(t, fmt.Sprintf(`{
		"type": "/problems/payment-refused",
		"title": "The payment provider refused the request",
		"status": 422,
		"detail": "The order was not charged in time, and it will not be charged any more.",
		"retry": "new-key",
		"outcome": "final",
		"code": "charge_window_over",
		"order_id": %q
	}`, orderID(f.account, f.key)), string(result.Response.Body))
	require.Equal(t, orders.StatusPaymentFailed, f.getOrder().Status)
}

// A run confirms a payment until its lease ends. So the lease must end within the
// window.
func TestChargeWindow_limit(t *testing.T) {
	t.Parallel()
	for want, age := range map[string]time.Duration{
		"201":                    24*time.Hour - lockTimeout - 30*time.Second,
		"422 charge_window_over": 24*time.Hour - lockTimeout + time.Second,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			f.interrupt(confirmEndpoint, visa)
			f.backdate(age)
			require.Equal(t, want, outcomeOf(f.create(visa)))
			f.checkFinal()
		})
	}
}

// The window ends between the create and the confirm of one run.
func TestChargeWindow_endsDuringRun(t *testing.T) {
	t.Parallel()
	for _, resumed := range []bool{false, true} {
		t.Run(fmt.Sprintf("resumed %t", resumed), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{chargeWindow: lockTimeout + 2*time.Second})
			if resumed {
				f.interrupt(createEndpoint, visa)
			}
			slow := f.stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: createEndpoint, Delay: 2500 * time.Millisecond})
			require.Equal(t, "422 charge_window_over", outcomeOf(f.create(visa)))
			slow.Release()
			require.Equal(t, "create 200, get 200, cancel 200", f.transport.calls())
			f.checkFinal()
		})
	}
}

// Refunds have no charge window.
func TestChargeWindow_refund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	p := f.createPaid(visa)
	const key idempotency.Key = "an-old-refund-of-this-test"
	limit := f.stripe.Inject(always(stripetest.RateLimit, "POST /v1/refunds")[0])
	require.Equal(t, "unavailable 2s", outcomeOf(p.createRefund(key, `{"amount":100}`)))
	limit.Release()
	f.exec("UPDATE idempotency_keys SET created_at = created_at - interval '9 days'")
	f.exec("UPDATE orders SET created_at = created_at - interval '9 days'")
	require.Equal(t, "201", outcomeOf(p.resumeRefund(key)))
}

// The age is that of the order, in each step of a run.
func TestChargeWindow_ageOfOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.interrupt(createEndpoint, visa)
	f.exec("UPDATE idempotency_keys SET created_at = created_at - $1::interval", age)
	require.Equal(t, "201", outcomeOf(f.create(visa)))
	f.checkFinal()
}
