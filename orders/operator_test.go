package orders_test

import (
	"context"
	"encoding/json"
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

var action = orders.OperatorAction{Actor: "grace", Reason: "the customer called"}

const actionJSON = `{"by":"grace","reason":"the customer called"}`

func (f *fixture) retry() (idempotency.Result, error) { return f.operate(f.service.Retry, action) }

func (f *fixture) resolve() (idempotency.Result, error) { return f.operate(f.service.Resolve, action) }

type operateFunc = func(context.Context, uuid.UUID, uuid.UUID, orders.OperatorAction) (idempotency.Result, error)

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

func (f *fixture) keyRow() string {
	f.t.Helper()
	var row string
	require.NoError(f.t, f.pool.QueryRow(f.t.Context(), "SELECT k::text FROM idempotency_keys k WHERE id = $1",
		idempotency.KeyID(f.account, f.key)).Scan(&row))
	return row
}

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
	f := newFixture(t, options{}, stopBefore(confirm))
	f.markNeedsReview()
	f.do(retryByOperator("201"))
	require.False(t, f.result.Replayed)
	require.Contains(t, f.history(), "idempotency_key key.retry "+actionJSON)
	require.Equal(t, 1, f.count("SELECT count(*) FROM idempotency_keys WHERE needs_review_at IS NULL"))
	f.do(retry("201"))
	f.checkFinal()
}

// After a retry without an outcome the completer attempts the key again.
func TestRetry_noOutcome(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, stopBefore(confirm))
	f.markNeedsReview()
	f.do(makeUnavailable(getIntent), retryByOperator("503 outcome unknown, 2s"))
	require.Equal(t, 1, f.count("SELECT count(*) FROM idempotency_keys WHERE recovery_point = 'charge_created' AND needs_review_at IS NULL AND completer_attempt = 0 AND locked_at IS NULL"))
	f.ageLastRun(2 * grace)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.runCompleter())
	f.checkFinal()
}

// An operator ends an order at each point. The provider's records choose the response.
func TestResolve(t *testing.T) {
	t.Parallel()
	shared := newFixture(t, options{})
	for name, test := range map[string]struct {
		steps   []step
		outcome string
		calls   string
		intents []string // their status in the end
	}{
		"no intent": {
			steps:   []step{stopBefore(createIntent)},
			outcome: "422 closed_by_operator", calls: "search 200, create 200, get 200, cancel 200", intents: []string{"canceled"},
		},
		"no intent, and the account is not set up for the create": {
			steps: []step{
				fault(stripetest.AccountNotReady, createIntent), create("503 unavailable, 1m0s"),
			},
			outcome: "422 closed_by_operator", calls: "search 200, create 400, search 200, list 200",
		},
		"intent created, response lost": {
			steps:   []step{loseResponse(createIntent), create("503 unavailable, 1s")},
			outcome: "422 closed_by_operator", calls: "search 200, create 200, get 200, cancel 200", intents: []string{"canceled"},
		},
		"unconfirmed": {
			steps:   []step{stopBefore(confirm)},
			outcome: "422 closed_by_operator", calls: "get 200, cancel 200", intents: []string{"canceled"},
		},
		"charged, response lost": {
			steps:   []step{loseResponse(confirm, getIntent), create("503 outcome unknown, 1s")},
			outcome: "201", calls: "get 200", intents: []string{"succeeded"},
		},
		"charged before our cancel arrives": {
			steps:   []step{stopBefore(confirm), before(cancel, confirmAtProvider)},
			outcome: "201", calls: "get 200, cancel 400, get 200", intents: []string{"succeeded"},
		},
		"cancelled at the provider": {
			steps:   []step{stopBefore(confirm), cancelAtProvider},
			outcome: "422 closed_by_operator", calls: "get 200", intents: []string{"canceled"},
		},
		"declined, response lost": {
			steps:   []step{payWith("pm_card_chargeDeclinedExpiredCard"), stopBefore(confirm), confirmAtProvider},
			outcome: "402 expired_card expired_card", calls: "get 200, cancel 200", intents: []string{"canceled"},
		},
		"requires action":            {steps: []step{challenge}, outcome: "422 closed_by_operator", calls: "get 200, cancel 200", intents: []string{"canceled"}},
		"processing, then succeeded": {steps: []step{inProcess, paymentSucceeds}, outcome: "201", calls: "get 200", intents: []string{"succeeded"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := shared.withNewKey(t)
			f.do(test.steps...)
			f.markNeedsReview()
			f.transport.reset()
			f.do(resolve(test.outcome), expectCalls(test.calls), expectIntents(test.intents...))
			require.Contains(t, f.history(), "idempotency_key key.resolve "+actionJSON)
			require.Zero(t, f.count("SELECT count(*) FROM idempotency_keys WHERE recovery_point <> 'finished' OR needs_review_at IS NOT NULL"))
			f.do(retry(test.outcome))
			require.True(t, f.result.Replayed)
			f.checkFinal()
		})
	}
}

// While the outcome of the payment is unknown, no response is stored (R11).
func TestResolve_noOutcome(t *testing.T) {
	t.Parallel()
	shared := newFixture(t, options{})
	for name, test := range map[string]struct {
		before  step
		fault   step
		outcome string
		point   string
	}{
		"payment in process": {inProcess, fault(stripetest.Slow), "503 outcome unknown, 30s", "charge_created"},
		"create unavailable": {stopBefore(createIntent), makeUnavailable(createIntent), "503 unavailable, 2s", "order_created"},
		"get unavailable":    {stopBefore(confirm), makeUnavailable(getIntent), "503 outcome unknown, 2s", "charge_created"},
		"cancel unavailable": {stopBefore(confirm), makeUnavailable(cancel), "503 outcome unknown, 2s", "charge_created"},
	} {
		t.Run(name, func(t *testing.T) {
			f := shared.withNewKey(t)
			f.do(test.before)
			f.markNeedsReview()
			f.do(test.fault, resolve(test.outcome))
			require.Equal(t, orders.StatusPending, f.getOrder().Status)
			require.Zero(t, f.count("SELECT count(*) FROM staged_jobs"))
			const released = "id = $1 AND recovery_point = $2 AND response_code IS NULL AND needs_review_at IS NOT NULL AND locked_at IS NULL"
			require.Equal(t, 1, f.count("SELECT count(*) FROM idempotency_keys WHERE "+released, idempotency.KeyID(f.account, f.key), test.point), "it still needs review")
			require.Contains(t, f.history(), "idempotency_key key.resolve "+actionJSON, "the audit record is written nevertheless")
		})
	}
}

// A run that continues after an operator has ended its order charges nothing (R7).
func TestResolve_otherRunContinues(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"create", "confirm"} {
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

			require.Equal(t, "409 in progress", outcomeOf(f.resolve()), "its lease is not over")
			f.setLease(lockTimeout + time.Second)
			result, err := f.resolve()
			require.Equal(t, "422 closed_by_operator", outcomeOf(result, err))
			resolved := f.keyRow()

			close(released)
			require.Equal(t, "409 in progress", <-delayed)
			require.Equal(t, resolved, f.keyRow())
			require.Empty(t, f.stripe.Charges())
			require.Len(t, f.intents(), 1)
			require.Equal(t, "canceled", f.intents()[0].Status)
			again, err := f.create(visa)
			require.NoError(t, err)
			require.Equal(t, result.Response, again.Response)
			f.checkFinal()
		})
	}
}

// A rejected action changes nothing, and leaves no audit record.
func TestOperator_rejectedAction(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*fixture) operateFunc{
		"retry":   func(f *fixture) operateFunc { return f.service.Retry },
		"resolve": func(f *fixture) operateFunc { return f.service.Resolve },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := newFixture(t, options{})
			other := idempotencytest.Account(t, shared.pool)
			held := func(f *fixture) { f.setLease(lockTimeout / 2) }
			renamed := func(f *fixture) {
				f.exec("UPDATE idempotency_keys SET operation = 'subscribe' WHERE id = $1", idempotency.KeyID(f.account, f.key))
			}
			hideAuditRecords := func(f *fixture) { f.exec("ALTER TABLE audit_records RENAME TO hidden") }
			const missing = "no such unfinished key"
			for key, test := range map[idempotency.Key]struct {
				steps   []step
				account uuid.UUID
				err     string
			}{
				"a-key-that-is-finished":   {[]step{create("201")}, shared.account, missing},
				"a-key-that-a-run-holds":   {[]step{stopBefore(confirm), held}, shared.account, idempotency.ErrInProgress.Error()},
				"a-key-of-another-account": {[]step{stopBefore(confirm)}, other, missing},
				"a-key-of-a-newer-version": {[]step{stopBefore(confirm), renamed}, shared.account, idempotency.ErrNewerVersion.Error()},
				"a-key-without-a-record":   {[]step{stopBefore(confirm), hideAuditRecords}, shared.account, "audit record: "},
			} {
				f := shared.withKey(t, key)
				f.do(test.steps...)
				f.transport.reset()
				before := f.keyRow()
				result, err := do(f)(t.Context(), test.account, idempotency.KeyID(f.account, f.key), action)
				require.ErrorContains(t, err, test.err, key)
				require.Zero(t, result.Response, key)
				require.Equal(t, before, f.keyRow(), key)
				f.do(expectCalls(""))
				f.exec("ALTER TABLE IF EXISTS hidden RENAME TO audit_records")
				require.Zero(t, f.count("SELECT count(*) FROM audit_records WHERE resource_type = 'idempotency_key' AND resource_id = $1",
					idempotency.KeyID(f.account, f.key).String()), key)
			}
		})
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	nothing, err := orders.History(t.Context(), f.pool, f.account, f.key)
	require.NoError(t, err)
	require.Nil(t, nothing.Order)
	require.Empty(t, nothing.Records)

	f.do(stopBefore(confirm))
	f.do(makeUnavailable(getIntent), retryByOperator("503 outcome unknown, 2s"), retry("201"))
	want := []string{
		"order order.created",
		"order order.charge_created",
		"idempotency_key key.retry " + actionJSON,
		"order order.paid",
	}
	require.Equal(t, want, f.history())

	history, err := orders.History(t.Context(), f.pool, f.account, f.key)
	require.NoError(t, err)
	require.Equal(t, f.getOrder(), *history.Order)
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
	other, err := orders.History(t.Context(), f.pool, idempotencytest.Account(t, f.pool), f.key)
	require.NoError(t, err)
	require.Nil(t, other.Order)
	require.Empty(t, other.Records)
}
