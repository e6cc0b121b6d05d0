package orders_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/payments/stripetest"
)

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
