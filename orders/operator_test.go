package orders_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/payments/stripetest"
)

var action = audit.Operator{Actor: "grace", Reason: "the customer called"}

const actionJSON = `{"by": "grace", "reason": "the customer called"}`

func (f *fixture) retry() (idempotency.Result, error) { return f.operate(f.Retry) }

func (f *fixture) resolve() (idempotency.Result, error) { return f.operate(f.Resolve) }

func (f *fixture) resolveKey(key idempotency.Key) (idempotency.Result, error) {
	f.t.Helper()
	return f.Resolve(f.t.Context(), f.Account, idempotency.KeyID(f.Account, key), action)
}

type operateFunc = func(context.Context, uuid.UUID, uuid.UUID, audit.Operator) (idempotency.Result, error)

func (f *fixture) operate(do operateFunc) (idempotency.Result, error) {
	f.t.Helper()
	result, err := do(f.t.Context(), f.Account, idempotency.KeyID(f.Account, f.key), action)
	f.recordResponse(idempotency.Request{AccountID: f.Account, Key: f.key}, result, err)
	return result, err
}

func (f *fixture) keyRow() string {
	f.t.Helper()
	var row string
	require.NoError(f.t, f.Pool.QueryRow(f.t.Context(), "SELECT k::text FROM idempotency_keys k WHERE id = $1",
		idempotency.KeyID(f.Account, f.key)).Scan(&row))
	return row
}

// history returns the audit records of the key and its order, also of a reaped key.
func (f *fixture) history() []string {
	f.t.Helper()
	records, err := audit.Records(f.t.Context(), f.Pool, f.Account, idempotency.KeyID(f.Account, f.key), orderID(f.Account, f.key))
	require.NoError(f.t, err)
	var list []string
	for _, record := range records {
		line := record.Action
		if strings.HasPrefix(line, "key.") {
			line += " " + string(record.Data)
		}
		list = append(list, line)
	}
	return list
}

func TestRetry(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, stopBefore(confirm))
	f.do(retryByOperator("201"))
	require.False(t, f.result.Replayed)
	require.Contains(t, f.history(), "key.retry "+actionJSON)
	f.do(retry("201"))
	f.checkFinal()
}

// [TestChargeWindow] has more scenarios of an order that closes.
func TestResolve(t *testing.T) {
	t.Parallel()
	shared := newFixture(t, options{}, create("201"))
	for name, test := range map[string]struct {
		steps   []step
		outcome string
		calls   string
		intents []string // their status in the end
	}{
		"no intent": {
			steps:   []step{stopBefore(createIntent)},
			outcome: "422 canceled", calls: "search 200, create 200, get 200, cancel 200", intents: []string{"canceled"},
		},
		"no intent, and the account is not set up for the create": {
			steps: []step{
				fault(stripetest.AccountNotReady, createIntent), create("503 unavailable, 1m0s"), latePeriod,
			},
			outcome: "422 canceled", calls: "search 200, get 200",
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
			outcome: "422 canceled", calls: "get 200", intents: []string{"canceled"},
		},
		"requires action":            {steps: []step{challenge}, outcome: "422 canceled", calls: "get 200, cancel 200", intents: []string{"canceled"}},
		"processing, then succeeded": {steps: []step{inProcess, paymentSucceeds}, outcome: "201", calls: "get 200", intents: []string{"succeeded"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := shared.withNewKey(t)
			f.do(test.steps...)
			f.transport.reset()
			f.do(resolve(test.outcome), expectCalls(test.calls), expectIntents(test.intents...))
			require.Contains(t, f.history(), "key.resolve "+actionJSON)
			require.Zero(t, f.count("SELECT count(*) FROM idempotency_keys WHERE recovery_point <> 'finished'"))
			f.do(retry(test.outcome))
			require.True(t, f.result.Replayed)
			f.checkFinal()
		})
	}
}

func TestOperator_rejectedAction(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*fixture) operateFunc{
		"retry":   func(f *fixture) operateFunc { return f.Retry },
		"resolve": func(f *fixture) operateFunc { return f.Resolve },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := newFixture(t, options{})
			other := idempotencytest.Account(t, shared.Pool)
			hideAuditRecords := func(f *fixture) { f.exec("ALTER TABLE audit_records RENAME TO hidden") }
			change := func(assignment string) step {
				return func(f *fixture) {
					f.exec("UPDATE idempotency_keys SET "+assignment+" WHERE id = $1", idempotency.KeyID(f.Account, f.key))
				}
			}
			const missing = "no such idempotency key"
			newer := idempotency.ErrNewerVersion.Error()
			for key, test := range map[idempotency.Key]struct {
				steps   []step
				account uuid.UUID
				err     string
			}{
				"a-key-that-is-finished":   {[]step{create("201")}, shared.Account, missing},
				"a-key-of-another-account": {[]step{stopBefore(confirm)}, other, missing},
				"a-key-of-a-new-operation": {[]step{stopBefore(confirm), change("operation = 'subscribe'")}, shared.Account, newer},
				"a-key-at-a-new-point":     {[]step{stopBefore(confirm), change("recovery_point = 'screened'")}, shared.Account, newer},
				"a-key-without-a-record":   {[]step{stopBefore(confirm), hideAuditRecords}, shared.Account, "audit_records"},
			} {
				f := shared.withKey(t, key)
				f.do(test.steps...)
				f.transport.reset()
				before := f.keyRow()
				result, err := do(f)(t.Context(), test.account, idempotency.KeyID(f.Account, f.key), action)
				require.ErrorContains(t, err, "nothing was changed: ", key)
				require.ErrorContains(t, err, test.err, key)
				require.Zero(t, result.Response, key)
				require.Equal(t, before, f.keyRow(), key)
				f.do(expectCalls(""))
				f.exec("ALTER TABLE IF EXISTS hidden RENAME TO audit_records")
				require.Zero(t, f.count("SELECT count(*) FROM audit_records WHERE resource_type = 'idempotency_key' AND resource_id = $1",
					idempotency.KeyID(f.Account, f.key).String()), key)
				require.Zero(t, f.count("SELECT count(*) FROM orders WHERE cancel_requested_at IS NOT NULL OR cancel_requested_by IS NOT NULL"), key)
			}
		})
	}
}

// A name may be that of more orders than are listed, such as the reference of a purchase whose card was declined
// often. The newest of them is the one that may be paid.
func TestFind_newest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.exec(`
INSERT INTO orders (account_id, id, idempotency_key, reference, email, currency, amount, items, metadata, payment_method, status, failure_code, created_at)
SELECT $1, gen_random_uuid(), 'one-of-many-keys-' || i, 'basket 4711', 'ada@example.com', 'usd', 100, '[]', '{}', 'pm_card_visa',
       'payment_failed', 'card_declined', now() - abs(100 - i) * interval '1 minute'
  FROM generate_series(1, 200) AS i`, f.Account)
	for _, name := range []string{"basket 4711", "ADA@example.com"} {
		found, err := f.Engine.FindResources(t.Context(), []uuid.UUID{f.Account}, name)
		require.NoError(t, err)
		require.Contains(t, keysOf(found), idempotency.Key("one-of-many-keys-100"), name)
		require.NotContains(t, keysOf(found), idempotency.Key("one-of-many-keys-1"), name)
	}
}

func keysOf(found []idempotency.Found) (keys []idempotency.Key) {
	for _, f := range found {
		keys = append(keys, f.Key)
	}
	return keys
}
