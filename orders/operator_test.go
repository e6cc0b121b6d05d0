package orders_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/audit"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

const actionJSON = `{"by": "grace", "reason": "the customer called"}`

type operateFunc = func(context.Context, uuid.UUID, uuid.UUID, audit.Operator) (idempotency.Result, error)

func operate(f *Fixture, do operateFunc) (idempotency.Result, error) {
	f.T.Helper()
	result, err := do(f.T.Context(), f.Account, idempotency.KeyID(f.Account, f.Key), Operator)
	f.RecordResponse(idempotency.Request{AccountID: f.Account, Key: f.Key}, result, err)
	return result, err
}

// history returns the audit records of the key and its order, also of a reaped key.
func history(f *Fixture) []string {
	f.T.Helper()
	return f.Texts(`
SELECT action || CASE WHEN resource_type = 'idempotency_key' THEN ' ' || data::text ELSE '' END
  FROM audit_records
 WHERE resource_id IN ($1, $2)
 ORDER BY created_at, id`, idempotency.KeyID(f.Account, f.Key).String(), OrderID(f.Account, f.Key).String())
}

// A name may be that of more orders than are listed, such as the reference of a purchase whose card was declined
// often. The newest of them is the one that may be paid.
func TestFind_all(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{})
	f.Exec(`
INSERT INTO orders (account_id, id, idempotency_key, reference, email, currency, amount, items, metadata, payment_method, status, failure_code, created_at)
SELECT $1, gen_random_uuid(), 'one-of-many-keys-' || i, 'basket 4711', 'ada@example.com', 'usd', 100, '[]', '{}', 'pm_card_visa',
       'payment_failed', 'card_declined', now() - abs(100 - i) * interval '1 minute'
  FROM generate_series(1, 200) AS i`, f.Account)
	for _, name := range []string{"basket 4711", "ADA@example.com"} {
		found, err := f.Engine.FindResources(t.Context(), []uuid.UUID{f.Account}, name)
		require.NoError(t, err)
		require.Len(t, found, 200, name)
		require.EqualValues(t, "one-of-many-keys-100", found[0].Key, "the newest first")
	}
}

func markedOrder(f *Fixture) { f.RequireMark("orders", OrderID(f.Account, f.Key)) }

// If the provider does not answer our cancel, or the operator's process dies, no later run charges what an operator
// has marked (R29).
func TestMark_endedByLaterRun(t *testing.T) {
	t.Parallel()
	byCompleter := func(f *Fixture) {
		f.AgeLastRun(Grace + time.Minute)
		require.Equal(f.T, 1, f.RunCompleter().Completed)
	}
	for name, stop := range map[string]Step{
		"before the intent is stored": StopBefore(CreateIntent), "before the confirm": StopBefore(Confirm), "requires action": Challenge,
	} {
		for by, end := range map[string]Step{
			"client": Retry("422 canceled"), "completer": byCompleter, "operator": resolve("422 canceled"),
		} {
			t.Run(name+", "+by, func(t *testing.T) {
				t.Parallel()
				f := NewFixture(t, Setup{}, stop, MakeUnavailable(Cancel), resolve("503 outcome unknown, 2s"), markedOrder)
				require.Contains(t, history(f), "key.resolve "+actionJSON)
				f.Do(end, Create("422 canceled"), expectIntents("canceled"), ExpectCharges(0), expectFailure("canceled"))
				f.CheckFinal()
			})
		}
	}
}

// The provider rejects our API key, so an order without an intent ends with the window.
func TestMark_credentialsRejected(t *testing.T) {
	t.Parallel()
	const rejected = "503 unavailable, 1m0s"
	f := NewFixture(t, Setup{}, Fault(stripetest.Unauthorized, CreateIntent), Create(rejected))
	f.Do(
		Fault(stripetest.Unauthorized, Search), resolve(rejected), markedOrder,
		latePeriod, Fault(stripetest.Unauthorized, Search), Retry(rejected),
		lateWindow, Fault(stripetest.Unauthorized, Search), Retry("422 canceled"), ExpectCharges(0),
	)
	f.CheckFinal()
}

// A charge that happened wins, and no final order is marked.
func TestMark_chargedFirst(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, LoseResponse(Confirm, GetIntent), Create("503 outcome unknown, 1s"))
	f.Do(resolve("201"), ExpectCharges(1), Retry("201"))
	before := f.Snapshot()
	_, err := operate(f, f.Resolve)
	require.ErrorIs(t, err, idempotency.ErrNotFound)
	require.Equal(t, before, f.Snapshot())
	f.CheckFinal()
}

// The COMMIT of the mark is not acknowledged. Repeating the command is safe, whether or not it was executed.
func TestMark_unknownCommit(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]idempotencytest.Fault{"executed": idempotencytest.CutAfter, "not executed": idempotencytest.CutBefore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wire := &idempotencytest.Wire{}
			f := NewFixture(t, Setup{Configure: wire.Configure}, StopBefore(Confirm))
			wire.Reset()
			wire.Strike(1, fault)
			f.Do(resolve("database unavailable"), ExpectCalls(""), resolve("422 canceled"), markedOrder, ExpectCharges(0))
			f.CheckFinal()
		})
	}
}

// A client cancels while an operator marks: both orders of the two, and through the key of the cancel.
func TestMark_besideCancel(t *testing.T) {
	t.Parallel()
	const unknown = "503 outcome unknown, 2s"
	resolveCancel := func(want string) Step {
		return func(f *Fixture) {
			f.Expect(want, func(f *Fixture) (idempotency.Result, error) { return f.ResolveKey(cancelKey(f)) })
		}
	}
	unanswered := MakeUnavailable(Cancel)
	for name, steps := range map[string][]Step{
		"cancel, then mark":           {unanswered, cancelOrder(unknown), resolve("422 canceled"), cancelOrder("200")},
		"mark, then cancel":           {unanswered, resolve(unknown), cancelOrder("200")},
		"mark by the cancel's key":    {unanswered, cancelOrder(unknown), resolveCancel("200")},
		"twice by the cancel's key":   {unanswered, cancelOrder(unknown), unanswered, resolveCancel(unknown), resolveCancel("200")},
		"the cancel's key, completed": {unanswered, cancelOrder(unknown), unanswered, resolveCancel(unknown), Create("422 canceled"), cancelOrder("200")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{}, Challenge)
			f.Do(steps...)
			f.Do(markedOrder, Create("422 canceled"), expectFailure("canceled"), expectIntents("canceled"), ExpectCharges(0))
			f.CheckFinal()
		})
	}
	f := NewFixture(t, Setup{}, InProcess, cancelOrder("503 outcome unknown, 30s"), PaymentSucceeds)
	f.Do(resolveCancel(notCancelable), Create("201"), ExpectCharges(1))
	f.CheckFinal()
}
