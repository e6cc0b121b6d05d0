package orders_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/audit"
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

// An action that cannot be recorded, or that another account's operator requests, changes nothing.
func TestOperator_rejectedAction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, stopBefore(confirm))
	f.exec("ALTER TABLE audit_records RENAME TO hidden")
	written := func() int {
		return f.count("SELECT sum(xmin::text::bigint)::bigint FROM (SELECT xmin FROM idempotency_keys UNION ALL SELECT xmin FROM orders) AS rows")
	}
	before := written()
	for want, account := range map[string]uuid.UUID{
		"audit_records": f.Account, "no such idempotency key": idempotencytest.Account(t, f.Pool),
	} {
		for _, do := range []operateFunc{f.Retry, f.Resolve} {
			result, err := do(t.Context(), account, idempotency.KeyID(f.Account, f.key), action)
			require.ErrorContains(t, err, "nothing was changed: ")
			require.ErrorContains(t, err, want)
			require.Zero(t, result.Response)
		}
	}
	require.Equal(t, before, written())
	f.do(expectCalls(""))
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
		has := func(key idempotency.Key) bool {
			return slices.ContainsFunc(found, func(found idempotency.Found) bool { return found.Key == key })
		}
		require.True(t, has("one-of-many-keys-100"), name)
		require.False(t, has("one-of-many-keys-1"), name)
	}
}
