package orders_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// action is the operator's action in most tests.
var action = orders.OperatorAction{Actor: "grace", Reason: "the customer called"}

const actionJSON = `{"by":"grace","reason":"the customer called"}`

func (f *fixture) retry() (idempotency.Result, error) { return f.operate(f.service.Retry, action) }

func (f *fixture) resolve() (idempotency.Result, error) { return f.operate(f.service.Resolve, action) }

type operateFunc = func(context.Context, uuid.UUID, uuid.UUID, orders.OperatorAction) (idempotency.Result, error)

// operate applies an operator's action to the key.
func (f *fixture) operate(do operateFunc, action orders.OperatorAction) (idempotency.Result, error) {
	f.t.Helper()
	result, err := do(f.t.Context(), f.account, idempotency.KeyID(f.account, f.key), action)
	f.recordResponse(orders.Request{Request: idempotency.Request{AccountID: f.account, Key: f.key}}, result, err)
	return result, err
}

// markNeedsReview marks the key as the completer does after its last attempt.
func (f *fixture) markNeedsReview() {
	f.t.Helper()
	f.exec("UPDATE idempotency_keys SET needs_review_at = now(), completer_attempt = 10 WHERE id = $1", idempotency.KeyID(f.account, f.key))
}

// keyRow returns the row of the key as text.
func (f *fixture) keyRow() string {
	f.t.Helper()
	var row string
	require.NoError(f.t, f.pool.QueryRow(f.t.Context(), "SELECT k::text FROM idempotency_keys k WHERE id = $1",
		idempotency.KeyID(f.account, f.key)).Scan(&row))
	return row
}

// history lists the audit records of the order and its key, with the data of those of
// an operator.
func (f *fixture) history() []string {
	f.t.Helper()
	history, err := orders.History(f.t.Context(), f.pool, f.account, f.key)
	require.NoError(f.t, err)
	var list []string
	for _, record := range history.Records {
		line := record.Resource + " " + record.Action
		if record.Resource == "idempotency_key" {
			line += " " + string(compact(f.t, record.Data))
			require.Empty(f.t, record.ClientIP)
		}
		list = append(list, line)
	}
	return list
}

// compact returns JSON as Go writes it.
func compact(t *testing.T, data json.RawMessage) []byte {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(data, &value))
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return text
}

func TestRetry(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.interrupt(confirmEndpoint, visa)
	f.markNeedsReview()
	result, err := f.retry()
	require.Equal(t, "201", outcomeOf(result, err))
	require.False(t, result.Replayed)
	require.Equal(t, []string{
		"order order.created",
		"order order.charge_created",
		"idempotency_key key.retry " + actionJSON,
		"order order.paid",
	}, f.history())
	require.Equal(t, 1, f.count("SELECT count(*) FROM idempotency_keys WHERE needs_review_at IS NULL"))

	again, err := f.create(visa)
	require.NoError(t, err)
	require.Equal(t, result.Response, again.Response)
	f.checkFinal()
}

// After a retry without an outcome the completer attempts the key again.
func TestRetry_noOutcome(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.interrupt(confirmEndpoint, visa)
	f.markNeedsReview()
	down := f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Times: stripetest.Always})
	require.Equal(t, "unknown 2s", outcomeOf(f.retry()))
	down.Release()
	require.Equal(t, 1, f.count(`
SELECT count(*)
  FROM idempotency_keys
 WHERE recovery_point = 'charge_created'
   AND needs_review_at IS NULL
   AND completer_attempt = 0
   AND locked_at IS NULL`))
	f.ageLastRun(2 * grace)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.runCompleter())
	f.checkFinal()
}

// An operator ends an order at each point. The response does not depend on the
// operator.
func TestResolve(t *testing.T) {
	t.Parallel()
	confirmLost := func(f *fixture, card string) {
		lost := f.stripe.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: confirmEndpoint, Times: stripetest.Always})
		down := f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: getEndpoint, Times: stripetest.Always})
		require.Equal(f.t, "unknown 2s", outcomeOf(f.create(card)))
		lost.Release()
		down.Release()
	}
	createLost := func(f *fixture, card string) {
		lost := f.stripe.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: createEndpoint, Times: stripetest.Always})
		require.Equal(f.t, "unavailable 1s", outcomeOf(f.create(card)))
		lost.Release()
	}
	stoppedAt := func(endpoint string) func(*fixture, string) {
		return func(f *fixture, card string) { f.interrupt(endpoint, card) }
	}

	tests := []struct {
		name   string
		card   string // visa when empty
		leave  func(f *fixture, card string)
		around func(*fixture) interceptor // during the act
		want   string
		calls  string
		intent string // its status in the end, "" when there is none
	}{
		{
			name: "no intent", leave: stoppedAt(createEndpoint),
			want: "422 closed_by_operator", calls: "list 200",
		},
		{
			name: "intent created, response lost", leave: createLost,
			want: "422 closed_by_operator", calls: "list 200, get 200, cancel 200", intent: "canceled",
		},
		{
			name: "intent created, response lost, and confirmed by another program", leave: func(f *fixture, card string) {
				createLost(f, card)
				f.outOfBand("/v1/payment_intents/"+f.intents()[0].ID+"/confirm", map[string][]string{"off_session": {"true"}})
			},
			want: "201", calls: "list 200, get 200", intent: "succeeded",
		},
		{
			name: "unconfirmed", leave: stoppedAt(confirmEndpoint),
			want: "422 closed_by_operator", calls: "get 200, cancel 200", intent: "canceled",
		},
		{
			name: "paid, response lost", leave: confirmLost,
			want: "201", calls: "get 200", intent: "succeeded",
		},
		{
			name: "confirmed before our cancel arrives", leave: stoppedAt(confirmEndpoint),
			around: beforeCall("cancel", confirmAtProvider),
			want:   "201", calls: "get 200, cancel 400, get 200", intent: "succeeded",
		},
		{
			name: "cancelled at the provider", leave: func(f *fixture, card string) {
				f.interrupt(confirmEndpoint, card)
				cancelAtProvider(f)
			},
			want: "422 closed_by_operator", calls: "get 200", intent: "canceled",
		},
		{
			name: "declined, response lost", card: "pm_card_chargeDeclinedExpiredCard", leave: func(f *fixture, card string) {
				f.interrupt(confirmEndpoint, card)
				confirmAtProvider(f)
			},
			want: "402 expired_card expired_card", calls: "get 200, cancel 200", intent: "canceled",
		},
		{
			name: "requires action", card: "pm_card_authenticationRequired", leave: func(f *fixture, card string) {
				f.interrupt(confirmEndpoint, card)
				confirmOnSession(f)
			},
			want: "422 closed_by_operator", calls: "get 200, cancel 200", intent: "canceled",
		},
		{
			name: "processing, then succeeded", card: stripetest.ProcessingCard, leave: func(f *fixture, card string) {
				require.Equal(f.t, "unknown 30s", outcomeOf(f.create(card)))
				settlePayment(true)(f)
			},
			want: "201", calls: "get 200", intent: "succeeded",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			card := cmp.Or(test.card, visa)
			test.leave(f, card)
			f.markNeedsReview()
			f.transport.reset()
			if test.around != nil {
				f.transport.intercept(test.around(f))
			}
			result, err := f.resolve()
			f.transport.intercept(nil)
			require.Equal(t, test.want, outcomeOf(result, err))
			require.Equal(t, test.calls, f.transport.calls())
			require.Contains(t, f.history(), "idempotency_key key.resolve "+actionJSON)
			require.Equal(t, 1, f.count("SELECT count(*) FROM idempotency_keys WHERE recovery_point = 'finished' AND needs_review_at IS NULL"))
			var status string
			for _, intent := range f.intents() {
				status += intent.Status
			}
			require.Equal(t, test.intent, status)

			again, err := f.create(card)
			require.NoError(t, err)
			require.True(t, again.Replayed)
			require.Equal(t, result.Response, again.Response)
			f.checkFinal()
		})
	}
}

func TestResolve_response(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.interrupt(confirmEndpoint, visa)
	result, err := f.resolve()
	require.NoError(t, err)
	require.Equal(t, http.StatusUnprocessableEntity, result.Response.Status)
	require.Equal(t, map[string]string{"Content-Type": "application/problem+json"}, result.Response.Headers)
	require.JSONEq(t, fmt.Sprintf(`{
		"type": "/problems/payment-refused",
		"title": "The payment provider refused the request",
		"status": 422,
		"detail": "The order was closed by its seller before the card was charged.",
		"retry": "new-key",
		"outcome": "final",
		"code": "closed_by_operator",
		"order_id": %q
	}`, orderID(f.account, f.key)), string(result.Response.Body))
	again, err := f.create(visa)
	require.NoError(t, err)
	require.Equal(t, string(result.Response.Body), string(again.Response.Body))
}

// While the outcome of the payment is unknown, no response is stored (R11).
func TestResolve_undecided(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		leave  func(*fixture)
		faults []stripetest.Rule
		want   string
		point  string
	}{
		"payment in process": {
			leave: func(f *fixture) { require.Equal(f.t, "unknown 30s", outcomeOf(f.create(stripetest.ProcessingCard))) },
			want:  "unknown 30s", point: "charge_created",
		},
		"list unavailable": {
			leave:  func(f *fixture) { f.interrupt(createEndpoint, visa) },
			faults: always(stripetest.Unavailable, listEndpoint),
			want:   "unavailable 2s", point: "order_created",
		},
		"get unavailable": {
			leave:  func(f *fixture) { f.interrupt(confirmEndpoint, visa) },
			faults: always(stripetest.Unavailable, getEndpoint),
			want:   "unknown 2s", point: "charge_created",
		},
		"cancel unavailable": {
			leave:  func(f *fixture) { f.interrupt(confirmEndpoint, visa) },
			faults: always(stripetest.Unavailable, cancelEndpoint),
			want:   "unknown 2s", point: "charge_created",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			test.leave(f)
			f.markNeedsReview()
			jobs := f.count("SELECT count(*) FROM staged_jobs")
			for _, rule := range test.faults {
				defer f.stripe.Inject(rule).Release()
			}
			require.Equal(t, test.want, outcomeOf(f.resolve()))
			require.Equal(t, orders.StatusPending, f.getOrder().Status)
			require.Equal(t, jobs, f.count("SELECT count(*) FROM staged_jobs"))
			require.Equal(t, 1, f.count(`
SELECT count(*)
  FROM idempotency_keys
 WHERE recovery_point = $1
   AND response_code IS NULL
   AND needs_review_at IS NOT NULL
   AND locked_at IS NULL`, test.point), "it still needs review")
			require.Contains(t, f.history(), "idempotency_key key.resolve "+actionJSON, "the audit record is written nevertheless")
		})
	}
}

// A run that continues after an operator has ended its order charges nothing (R7, R23).
func TestResolve_otherRunContinues(t *testing.T) {
	t.Parallel()
	for call, intent := range map[string]string{
		"create":  "requires_confirmation", // its id is unknown here; reconcile cancels it
		"confirm": "canceled",
	} {
		t.Run("before its "+call, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{concurrent: true})
			reached, released := make(chan struct{}), make(chan struct{})
			f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				if callName(req) == call {
					close(reached)
					<-released
				}
				return next.RoundTrip(req)
			})
			req := request(t, f.account, f.key, visa)
			delayed := make(chan string)
			go func() { delayed <- outcomeOf(f.service.Create(context.WithoutCancel(t.Context()), req)) }()
			<-reached
			f.transport.intercept(nil)

			require.Equal(t, "in progress", outcomeOf(f.resolve()), "its lease is not over")
			f.setLease(lockTimeout + time.Second)
			result, err := f.resolve()
			require.Equal(t, "422 closed_by_operator", outcomeOf(result, err))
			resolved := f.keyRow()

			close(released)
			require.Equal(t, "in progress", <-delayed)
			require.Equal(t, resolved, f.keyRow())
			require.Empty(t, f.stripe.Charges())
			require.Len(t, f.intents(), 1)
			require.Equal(t, intent, f.intents()[0].Status)
			again, err := f.create(visa)
			require.NoError(t, err)
			require.Equal(t, result.Response, again.Response)
			f.checkFinal()
		})
	}
}

// A rejected action changes nothing. At most it leaves an audit record.
func TestOperator_rejectedAction(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*fixture) operateFunc{
		"retry":   func(f *fixture) operateFunc { return f.service.Retry },
		"resolve": func(f *fixture) operateFunc { return f.service.Resolve },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			unchanged := func(f *fixture, want error, records int) func(idempotency.Result, error) {
				before := f.keyRow()
				return func(result idempotency.Result, err error) {
					f.t.Helper()
					require.ErrorIs(f.t, err, want)
					require.Zero(f.t, result.Response)
					require.Equal(f.t, before, f.keyRow())
					require.Empty(f.t, f.transport.calls())
					require.Equal(f.t, records, f.count("SELECT count(*) FROM audit_records WHERE resource_type = 'idempotency_key' AND resource_id = $1",
						idempotency.KeyID(f.account, f.key).String()))
				}
			}
			t.Run("finished key", func(t *testing.T) {
				f := f.withKey(t, "a-key-that-is-finished")
				_, err := f.create(visa)
				require.NoError(t, err)
				f.transport.reset()
				unchanged(f, orders.ErrNothingToDo, 0)(f.operate(do(f), action))
			})
			t.Run("key of a run in progress", func(t *testing.T) {
				f := f.withKey(t, "a-key-that-a-run-holds")
				f.interrupt(confirmEndpoint, visa)
				f.setLease(lockTimeout / 2)
				unchanged(f, idempotency.ErrInProgress, 1)(f.operate(do(f), action))
			})
			t.Run("no actor or no reason", func(t *testing.T) {
				f := f.withKey(t, "a-key-with-an-anonymous-action")
				f.interrupt(confirmEndpoint, visa)
				before := f.keyRow()
				for _, act := range []orders.OperatorAction{{}, {Actor: "grace"}, {Reason: "the customer called"}} {
					_, err := f.operate(do(f), act)
					require.ErrorContains(t, err, "needs an actor and a reason")
				}
				require.Equal(t, before, f.keyRow())
				require.Empty(t, f.transport.calls())
			})
			t.Run("key of another account", func(t *testing.T) {
				f := f.withKey(t, "a-key-of-another-account")
				f.interrupt(confirmEndpoint, visa)
				before := f.keyRow()
				_, err := do(f)(t.Context(), idempotencytest.Account(t, f.pool), idempotency.KeyID(f.account, f.key), action)
				require.ErrorIs(t, err, orders.ErrNothingToDo)
				_, err = do(f)(t.Context(), f.account, uuid.New(), action)
				require.ErrorIs(t, err, orders.ErrNothingToDo)
				require.Equal(t, before, f.keyRow())
				require.Empty(t, f.transport.calls())
			})
			t.Run("audit record fails", func(t *testing.T) {
				f := f.withKey(t, "a-key-without-a-record")
				f.interrupt(confirmEndpoint, visa)
				before := f.keyRow()
				f.exec("ALTER TABLE audit_records RENAME TO somewhere_else")
				_, err := f.operate(do(f), action)
				require.ErrorContains(t, err, "audit record: ")
				require.Equal(t, before, f.keyRow())
				require.Empty(t, f.transport.calls())
				f.exec("ALTER TABLE somewhere_else RENAME TO audit_records")
			})
		})
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	_, err := orders.History(t.Context(), f.pool, f.account, f.key)
	require.ErrorIs(t, err, orders.ErrNotFound)

	f.interrupt(confirmEndpoint, visa)
	down := f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Times: stripetest.Always})
	require.Equal(t, "unknown 2s", outcomeOf(f.retry()))
	down.Release()
	require.Equal(t, "201", outcomeOf(f.resume()))
	want := []string{
		"order order.created",
		"order order.charge_created",
		"idempotency_key key.retry " + actionJSON,
		"order order.paid",
	}
	require.Equal(t, want, f.history())

	history, err := orders.History(t.Context(), f.pool, f.account, f.key)
	require.NoError(t, err)
	require.Equal(t, f.getOrder(), history.Order)
	require.Nil(t, history.Refund)
	records := history.Records
	require.Equal(t, clientIP.String(), records[0].ClientIP)
	require.JSONEq(t, `{"amount":4300,"currency":"usd"}`, string(records[0].Data))
	for i, record := range records {
		require.WithinDuration(t, time.Now(), record.CreatedAt, time.Minute)
		require.True(t, i == 0 || !record.CreatedAt.Before(records[i-1].CreatedAt))
	}

	f.exec("DELETE FROM idempotency_keys")
	require.Equal(t, want, f.history(), "audit records outlive the key")
	_, err = orders.History(t.Context(), f.pool, idempotencytest.Account(t, f.pool), f.key)
	require.ErrorIs(t, err, orders.ErrNotFound)
}
