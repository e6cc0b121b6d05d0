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

// why is what every act here is done by and for.
var why = orders.OperatorAction{Actor: "grace", Reason: "the customer called"}

const whyJSON = `{"by":"grace","reason":"the customer called"}`

func (s *shop) retry() (idempotency.Result, error) { return s.act(s.service.Retry, why) }

func (s *shop) resolve() (idempotency.Result, error) { return s.act(s.service.Resolve, why) }

type actFunc = func(context.Context, uuid.UUID, uuid.UUID, orders.OperatorAction) (idempotency.Result, error)

// act does something to the key.
func (s *shop) act(do actFunc, act orders.OperatorAction) (idempotency.Result, error) {
	s.t.Helper()
	result, err := do(s.t.Context(), s.account, idempotency.KeyID(s.account, s.key), act)
	s.note(orders.Request{Request: idempotency.Request{AccountID: s.account, Key: s.key}}, result, err)
	return result, err
}

// giveUp leaves the key to a person.
func (s *shop) giveUp() {
	s.t.Helper()
	s.exec("UPDATE idempotency_keys SET needs_review_at = now(), completer_attempt = 10 WHERE id = $1", idempotency.KeyID(s.account, s.key))
}

// keyRow is the key as it is, byte for byte.
func (s *shop) keyRow() string {
	s.t.Helper()
	var row string
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), "SELECT k::text FROM idempotency_keys k WHERE id = $1",
		idempotency.KeyID(s.account, s.key)).Scan(&row))
	return row
}

// history lists what happened to the order and its key, with the data of what
// was done by a person.
func (s *shop) history() []string {
	s.t.Helper()
	story, err := orders.History(s.t.Context(), s.pool, s.account, s.key)
	require.NoError(s.t, err)
	var list []string
	for _, record := range story.Records {
		line := record.Resource + " " + record.Action
		if record.Resource == "idempotency_key" {
			line += " " + string(compact(s.t, record.Data))
			require.Empty(s.t, record.ClientIP)
		}
		list = append(list, line)
	}
	return list
}

// compact is JSON as Go writes it.
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
	s := openShop(t, terms{})
	s.stopAt(confirmEndpoint, visa)
	s.giveUp()
	result, err := s.retry()
	require.Equal(t, "201", say(result, err))
	require.False(t, result.Replayed)
	require.Equal(t, []string{
		"order order.created",
		"order order.charge_created",
		"idempotency_key key.retry " + whyJSON,
		"order order.paid",
	}, s.history())
	require.Equal(t, 1, s.count("SELECT count(*) FROM idempotency_keys WHERE needs_review_at IS NULL"))

	again, err := s.buy(visa)
	require.NoError(t, err)
	require.Equal(t, result.Response, again.Response)
	s.checkFinal()
}

// A key that is still stuck is the completer's again.
func TestRetry_inVain(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	s.stopAt(confirmEndpoint, visa)
	s.giveUp()
	away := s.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Times: stripetest.Always})
	require.Equal(t, "unknown 2s", say(s.retry()))
	away.Release()
	require.Equal(t, 1, s.count(`
SELECT count(*)
  FROM idempotency_keys
 WHERE recovery_point = 'charge_created'
   AND needs_review_at IS NULL
   AND completer_attempt = 0
   AND locked_at IS NULL`))
	s.idle(2 * grace)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, s.complete())
	s.checkFinal()
}

// How an operator closes an order, from wherever it was left. What the client is
// told is not his to choose.
func TestResolve(t *testing.T) {
	t.Parallel()
	confirmLost := func(s *shop, card string) {
		lost := s.stripe.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: confirmEndpoint, Times: stripetest.Always})
		away := s.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: getEndpoint, Times: stripetest.Always})
		require.Equal(s.t, "unknown 2s", say(s.buy(card)))
		lost.Release()
		away.Release()
	}
	createLost := func(s *shop, card string) {
		lost := s.stripe.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: createEndpoint, Times: stripetest.Always})
		require.Equal(s.t, "unavailable 1s", say(s.buy(card)))
		lost.Release()
	}
	stoppedAt := func(endpoint string) func(*shop, string) {
		return func(s *shop, card string) { s.stopAt(endpoint, card) }
	}

	tests := []struct {
		name   string
		card   string // visa when empty
		leave  func(s *shop, card string)
		around func(*shop) around // during the act
		want   string
		calls  string
		intent string // its status in the end, "" when there is none
	}{
		{
			name: "not at the provider yet", leave: stoppedAt(createEndpoint),
			want: "422 closed_by_operator", calls: "list 200",
		},
		{
			name: "at the provider, which nobody heard of", leave: createLost,
			want: "422 closed_by_operator", calls: "list 200, get 200, cancel 200", intent: "canceled",
		},
		{
			name: "at the provider, which nobody heard of, and paid there", leave: func(s *shop, card string) {
				createLost(s, card)
				s.behind("/v1/payment_intents/"+s.intents()[0].ID+"/confirm", map[string][]string{"off_session": {"true"}})
			},
			want: "201", calls: "list 200, get 200", intent: "succeeded",
		},
		{
			name: "not confirmed", leave: stoppedAt(confirmEndpoint),
			want: "422 closed_by_operator", calls: "get 200, cancel 200", intent: "canceled",
		},
		{
			name: "paid, which nobody heard of", leave: confirmLost,
			want: "201", calls: "get 200", intent: "succeeded",
		},
		{
			name: "paid by a confirm that arrives before our cancel", leave: stoppedAt(confirmEndpoint),
			around: beforehand("cancel", confirmBehind),
			want:   "201", calls: "get 200, cancel 400, get 200", intent: "succeeded",
		},
		{
			name: "cancelled at the provider", leave: func(s *shop, card string) {
				s.stopAt(confirmEndpoint, card)
				cancelBehind(s)
			},
			want: "422 payment_intent_canceled", calls: "get 200", intent: "canceled",
		},
		{
			name: "declined, which nobody heard of", card: "pm_card_chargeDeclinedExpiredCard", leave: func(s *shop, card string) {
				s.stopAt(confirmEndpoint, card)
				confirmBehind(s)
			},
			want: "402 expired_card expired_card", calls: "get 200", intent: "requires_payment_method",
		},
		{
			name: "in need of the card's owner", card: "pm_card_authenticationRequired", leave: func(s *shop, card string) {
				s.stopAt(confirmEndpoint, card)
				authenticateBehind(s)
			},
			want: "402 authentication_required authentication_required", calls: "get 200, cancel 200", intent: "canceled",
		},
		{
			name: "was processing and is paid by now", card: stripetest.ProcessingCard, leave: func(s *shop, card string) {
				require.Equal(s.t, "unknown 30s", say(s.buy(card)))
				settle(true)(s)
			},
			want: "201", calls: "get 200", intent: "succeeded",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			card := cmp.Or(test.card, visa)
			test.leave(s, card)
			s.giveUp()
			s.wire.forget()
			if test.around != nil {
				s.wire.put(test.around(s))
			}
			result, err := s.resolve()
			s.wire.put(nil)
			require.Equal(t, test.want, say(result, err))
			require.Equal(t, test.calls, s.wire.said())
			require.Contains(t, s.history(), "idempotency_key key.resolve "+whyJSON)
			require.Equal(t, 1, s.count("SELECT count(*) FROM idempotency_keys WHERE recovery_point = 'finished' AND needs_review_at IS NULL"))
			var status string
			for _, intent := range s.intents() {
				status += intent.Status
			}
			require.Equal(t, test.intent, status)

			again, err := s.buy(card)
			require.NoError(t, err)
			require.True(t, again.Replayed)
			require.Equal(t, result.Response, again.Response)
			s.checkFinal()
		})
	}
}

// The answer to the client of an order that was closed.
func TestResolve_answer(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	s.stopAt(confirmEndpoint, visa)
	result, err := s.resolve()
	require.NoError(t, err)
	require.Equal(t, http.StatusUnprocessableEntity, result.Response.Status)
	require.Equal(t, map[string]string{"Content-Type": "application/problem+json"}, result.Response.Headers)
	require.JSONEq(t, fmt.Sprintf(`{
		"type": "/problems/payment-refused",
		"title": "The payment provider refused the request",
		"status": 422,
		"detail": "The order was closed by its seller before the card was charged.",
		"retry": "new-key",
		"code": "closed_by_operator",
		"order_id": %q
	}`, orderOf(s.account, s.key)), string(result.Response.Body))
	again, err := s.buy(visa)
	require.NoError(t, err)
	require.Equal(t, string(result.Response.Body), string(again.Response.Body))
}

// While the payment may still go either way there is nothing to store (R11).
func TestResolve_undecided(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		leave  func(*shop)
		faults []stripetest.Rule
		want   string
		point  string
	}{
		"the payment is processing": {
			leave: func(s *shop) { require.Equal(s.t, "unknown 30s", say(s.buy(stripetest.ProcessingCard))) },
			want:  "unknown 30s", point: "charge_created",
		},
		"the provider is away, no intent yet": {
			leave:  func(s *shop) { s.stopAt(createEndpoint, visa) },
			faults: failing(stripetest.Unavailable, listEndpoint),
			want:   "unavailable 2s", point: "order_created",
		},
		"the provider is away": {
			leave:  func(s *shop) { s.stopAt(confirmEndpoint, visa) },
			faults: failing(stripetest.Unavailable, getEndpoint),
			want:   "unknown 2s", point: "charge_created",
		},
		"the provider does not take the cancel": {
			leave:  func(s *shop) { s.stopAt(confirmEndpoint, visa) },
			faults: failing(stripetest.Unavailable, cancelEndpoint),
			want:   "unknown 2s", point: "charge_created",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			test.leave(s)
			s.giveUp()
			jobs := s.count("SELECT count(*) FROM staged_jobs")
			for _, rule := range test.faults {
				defer s.stripe.Inject(rule).Release()
			}
			require.Equal(t, test.want, say(s.resolve()))
			require.Equal(t, orders.StatusPending, s.order().Status)
			require.Equal(t, jobs, s.count("SELECT count(*) FROM staged_jobs"))
			require.Equal(t, 1, s.count(`
SELECT count(*)
  FROM idempotency_keys
 WHERE recovery_point = $1
   AND response_code IS NULL
   AND needs_review_at IS NOT NULL
   AND locked_at IS NULL`, test.point), "it still needs review")
			require.Contains(t, s.history(), "idempotency_key key.resolve "+whyJSON, "the act is on record even so")
		})
	}
}

// A run that comes back after its order was closed charges nothing (R7, R23).
func TestResolve_zombie(t *testing.T) {
	t.Parallel()
	for call, intent := range map[string]string{
		"create":  "requires_confirmation", // and nobody knows its id, reconcile aside
		"confirm": "canceled",
	} {
		t.Run("before its "+call, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{crowd: true})
			asleep, awake := make(chan struct{}), make(chan struct{})
			s.wire.put(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				if callName(req) == call {
					close(asleep)
					<-awake
				}
				return next.RoundTrip(req)
			})
			req := request(t, s.account, s.key, visa)
			zombie := make(chan string)
			go func() { zombie <- say(s.service.Create(context.WithoutCancel(t.Context()), req)) }()
			<-asleep
			s.wire.put(nil)

			require.Equal(t, "in progress", say(s.resolve()), "it may be alive")
			s.lease(lockTimeout + time.Second)
			result, err := s.resolve()
			require.Equal(t, "422 closed_by_operator", say(result, err))
			closed := s.keyRow()

			close(awake)
			require.Equal(t, "in progress", <-zombie)
			require.Equal(t, closed, s.keyRow())
			require.Empty(t, s.stripe.Charges())
			require.Len(t, s.intents(), 1)
			require.Equal(t, intent, s.intents()[0].Status)
			again, err := s.buy(visa)
			require.NoError(t, err)
			require.Equal(t, result.Response, again.Response)
			s.checkFinal()
		})
	}
}

// What cannot be done leaves no trace, the audit record of the attempt aside.
func TestOperator_refusals(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*shop) actFunc{
		"retry":   func(s *shop) actFunc { return s.service.Retry },
		"resolve": func(s *shop) actFunc { return s.service.Resolve },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			nothing := func(s *shop, want error, records int) func(idempotency.Result, error) {
				before := s.keyRow()
				return func(result idempotency.Result, err error) {
					s.t.Helper()
					require.ErrorIs(s.t, err, want)
					require.Zero(s.t, result.Response)
					require.Equal(s.t, before, s.keyRow())
					require.Empty(s.t, s.wire.said())
					require.Equal(s.t, records, s.count("SELECT count(*) FROM audit_records WHERE resource_type = 'idempotency_key' AND resource_id = $1",
						idempotency.KeyID(s.account, s.key).String()))
				}
			}
			t.Run("a finished key", func(t *testing.T) {
				s := s.with(t, "a-key-that-is-finished")
				_, err := s.buy(visa)
				require.NoError(t, err)
				s.wire.forget()
				nothing(s, orders.ErrNothingToDo, 0)(s.act(do(s), why))
			})
			t.Run("a key that a run holds", func(t *testing.T) {
				s := s.with(t, "a-key-that-a-run-holds")
				s.stopAt(confirmEndpoint, visa)
				s.lease(lockTimeout / 2)
				nothing(s, idempotency.ErrInProgress, 1)(s.act(do(s), why))
			})
			t.Run("nobody, or for no reason", func(t *testing.T) {
				s := s.with(t, "a-key-with-an-anonymous-act")
				s.stopAt(confirmEndpoint, visa)
				before := s.keyRow()
				for _, act := range []orders.OperatorAction{{}, {Actor: "grace"}, {Reason: "the customer called"}} {
					_, err := s.act(do(s), act)
					require.ErrorContains(t, err, "needs an actor and a reason")
				}
				require.Equal(t, before, s.keyRow())
				require.Empty(t, s.wire.said())
			})
			t.Run("another account's key", func(t *testing.T) {
				s := s.with(t, "a-key-of-another-account")
				s.stopAt(confirmEndpoint, visa)
				before := s.keyRow()
				_, err := do(s)(t.Context(), idempotencytest.Account(t, s.pool), idempotency.KeyID(s.account, s.key), why)
				require.ErrorIs(t, err, orders.ErrNothingToDo)
				_, err = do(s)(t.Context(), s.account, uuid.New(), why)
				require.ErrorIs(t, err, orders.ErrNothingToDo)
				require.Equal(t, before, s.keyRow())
				require.Empty(t, s.wire.said())
			})
			t.Run("an act that cannot be recorded", func(t *testing.T) {
				s := s.with(t, "a-key-without-a-record")
				s.stopAt(confirmEndpoint, visa)
				before := s.keyRow()
				s.exec("ALTER TABLE audit_records RENAME TO somewhere_else")
				_, err := s.act(do(s), why)
				require.ErrorContains(t, err, "audit record: ")
				require.Equal(t, before, s.keyRow(), "is not done")
				require.Empty(t, s.wire.said())
				s.exec("ALTER TABLE somewhere_else RENAME TO audit_records")
			})
		})
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	_, err := orders.History(t.Context(), s.pool, s.account, s.key)
	require.ErrorIs(t, err, orders.ErrNotFound)

	s.stopAt(confirmEndpoint, visa)
	away := s.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Times: stripetest.Always})
	require.Equal(t, "unknown 2s", say(s.retry()))
	away.Release()
	require.Equal(t, "201", say(s.resume()))
	want := []string{
		"order order.created",
		"order order.charge_created",
		"idempotency_key key.retry " + whyJSON,
		"order order.paid",
	}
	require.Equal(t, want, s.history())

	story, err := orders.History(t.Context(), s.pool, s.account, s.key)
	require.NoError(t, err)
	require.Equal(t, s.order(), story.Order)
	require.Nil(t, story.Refund)
	records := story.Records
	require.Equal(t, clientIP.String(), records[0].ClientIP)
	require.JSONEq(t, `{"amount":4300,"currency":"usd"}`, string(records[0].Data))
	for i, record := range records {
		require.WithinDuration(t, time.Now(), record.CreatedAt, time.Minute)
		require.True(t, i == 0 || !record.CreatedAt.Before(records[i-1].CreatedAt))
	}

	s.exec("DELETE FROM idempotency_keys")
	require.Equal(t, want, s.history(), "what happened outlives the key")
	_, err = orders.History(t.Context(), s.pool, idempotencytest.Account(t, s.pool), s.key)
	require.ErrorIs(t, err, orders.ErrNotFound)
}
