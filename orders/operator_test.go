package orders_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

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

func (f *fixture) requireMark(table string, id uuid.UUID) {
	f.t.Helper()
	require.Equal(f.t, 1, f.count("SELECT count(*) FROM "+table+
		" WHERE account_id = $1 AND id = $2 AND cancel_requested_at IS NOT NULL AND cancel_requested_by = $3", f.Account, id, action.Actor))
}

func markedOrder(f *fixture) { f.requireMark("orders", orderID(f.Account, f.key)) }

// If the provider does not answer our cancel, or the operator's process dies, no later run charges what an operator
// has marked (R29).
func TestMark_endedByLaterRun(t *testing.T) {
	t.Parallel()
	byCompleter := func(f *fixture) {
		f.ageLastRun(grace + time.Minute)
		require.Equal(f.t, 1, f.runCompleter().Completed)
	}
	for name, stop := range map[string]step{
		"before the intent is stored": stopBefore(createIntent), "before the confirm": stopBefore(confirm), "requires action": challenge,
	} {
		for by, end := range map[string]step{
			"client": retry("422 canceled"), "completer": byCompleter, "operator": resolve("422 canceled"),
		} {
			t.Run(name+", "+by, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, options{}, stop, makeUnavailable(cancel), resolve("503 outcome unknown, 2s"), markedOrder)
				require.Contains(t, f.history(), "key.resolve "+actionJSON)
				f.do(end, create("422 canceled"), expectIntents("canceled"), expectCharges(0), expectFailure("canceled"))
				f.checkFinal()
			})
		}
	}
}

// The provider rejects our API key, so an order without an intent ends with the window.
func TestMark_credentialsRejected(t *testing.T) {
	t.Parallel()
	const rejected = "503 unavailable, 1m0s"
	f := newFixture(t, options{}, fault(stripetest.Unauthorized, createIntent), create(rejected))
	f.do(
		fault(stripetest.Unauthorized, search), resolve(rejected), markedOrder,
		latePeriod, fault(stripetest.Unauthorized, search), retry(rejected),
		lateWindow, fault(stripetest.Unauthorized, search), retry("422 canceled"), expectCharges(0),
	)
	f.checkFinal()
}

// A charge that happened wins, and no final order is marked.
func TestMark_chargedFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"))
	f.do(resolve("201"), expectCharges(1), retry("201"))
	before := f.snapshot()
	_, err := f.resolve()
	require.ErrorIs(t, err, idempotency.ErrNotFound)
	require.Equal(t, before, f.snapshot())
	f.checkFinal()
}

// The COMMIT of the mark is not acknowledged. Repeating the command is safe, whether or not it was executed.
func TestMark_unknownCommit(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]idempotencytest.Fault{"executed": idempotencytest.CutAfter, "not executed": idempotencytest.CutBefore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wire := &idempotencytest.Wire{}
			f := newFixture(t, options{configure: wire.Configure}, stopBefore(confirm))
			wire.Reset()
			wire.Strike(1, fault)
			f.do(resolve("database unavailable"), expectCalls(""), resolve("422 canceled"), markedOrder, expectCharges(0))
			f.checkFinal()
		})
	}
}

// A client cancels while an operator marks: both orders of the two, and through the key of the cancel.
func TestMark_besideCancel(t *testing.T) {
	t.Parallel()
	const unknown = "503 outcome unknown, 2s"
	resolveCancel := func(want string) step {
		return func(f *fixture) {
			f.expect(want, func(f *fixture) (idempotency.Result, error) { return f.resolveKey(f.cancelKey()) })
		}
	}
	unanswered := makeUnavailable(cancel)
	for name, steps := range map[string][]step{
		"cancel, then mark":           {unanswered, cancelOrder(unknown), resolve("422 canceled"), cancelOrder("200")},
		"mark, then cancel":           {unanswered, resolve(unknown), cancelOrder("200")},
		"mark by the cancel's key":    {unanswered, cancelOrder(unknown), resolveCancel("200")},
		"twice by the cancel's key":   {unanswered, cancelOrder(unknown), unanswered, resolveCancel(unknown), resolveCancel("200")},
		"the cancel's key, completed": {unanswered, cancelOrder(unknown), unanswered, resolveCancel(unknown), create("422 canceled"), cancelOrder("200")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, challenge)
			f.do(steps...)
			f.do(markedOrder, create("422 canceled"), expectFailure("canceled"), expectIntents("canceled"), expectCharges(0))
			f.checkFinal()
		})
	}
	f := newFixture(t, options{}, inProcess, cancelOrder("503 outcome unknown, 30s"), paymentSucceeds)
	f.do(resolveCancel(notCancelable), create("201"), expectCharges(1))
	f.checkFinal()
}
