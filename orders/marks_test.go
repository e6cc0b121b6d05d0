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

func markedRefund(f *fixture) { f.requireMark("refunds", refundID(f.Account, f.refundKey())) }

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
				f.do(end, create("422 canceled"), expectIntents("canceled"), expectCharges(0), expectFailure("canceled"))
				f.checkFinal()
			})
		}
	}
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

func expectRefundsAtProvider(n int) step {
	return func(f *fixture) { require.Len(f.t, f.Stripe.Refunds(), n) }
}

// No run makes a marked refund any more, however long it takes until one runs, and whoever runs it. One that exists
// is adopted.
func TestMark_refund(t *testing.T) {
	t.Parallel()
	const closed, inFlight = "422 canceled", "503 outcome unknown, 10m0s"
	weeks := func(f *fixture) { f.ageLastRun(21 * 24 * time.Hour); f.expireProviderKeys() }
	later := func(f *fixture) { f.ageLastRun(11 * time.Minute) }
	byCompleter := func(f *fixture) { require.Equal(f.t, 1, f.runCompleter().Completed) }
	notMade := []step{loseRequest(makeRefund), refund("503 outcome unknown, 1s"), resolveRefund(inFlight), markedRefund}
	rejected := []step{
		fault(stripetest.Unauthorized, listRefunds), refund("503 unavailable, 1m0s"),
		fault(stripetest.Unauthorized, listRefunds), resolveRefund("503 outcome unknown, 1m0s"), markedRefund,
	}
	for name, test := range map[string]struct {
		marked, then []step
		outcome      string
		made         int
	}{
		"retried by its client":             {notMade, []step{retry(inFlight), later, retry(closed)}, closed, 0},
		"continued by the completer":        {notMade, []step{later, byCompleter}, closed, 0},
		"resolved again":                    {notMade, []step{resolveRefund(inFlight), later, resolveRefund(closed)}, closed, 0},
		"the API key is rejected for weeks": {rejected, []step{weeks, byCompleter}, closed, 0},
		"the API key is valid again":        {rejected, []step{retry(inFlight), later, retry(closed)}, closed, 0},
		"made, and the response was lost": {
			[]step{
				loseResponse(makeRefund), secondListUnavailable, refund("503 outcome unknown, 2s"),
				makeUnavailable(listRefunds), resolveRefund("503 outcome unknown, 2s"), markedRefund,
			}, []step{weeks, byCompleter}, "201", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, createPaid(visa))
			f.do(test.marked...)
			f.do(test.then...)
			f.do(refund(test.outcome), expectRefundsAtProvider(test.made))
			if test.made == 0 {
				require.Equal(t, "canceled", *f.getRefund(f.refundKey()).FailureReason)
				require.Equal(t, "201", outcomeOf(f.refund("the-same-refund-again", `{}`)), "the amount is released")
			}
			checkRefundInvariants(t, f)
		})
	}
}

// The mark is written while a run holds the refund's key. Its call that is on its way decides; a resumed run, which
// first commits that it sends one, sees the mark and sends none.
func TestMark_refundInFlight(t *testing.T) {
	t.Parallel()
	mark := func(want string) step {
		return func(f *fixture) { f.do(resolveRefund(want), markedRefund) }
	}
	closed := "422 canceled"
	for name, test := range map[string]struct {
		steps []step
		made  int
	}{
		"the first run lists": {[]step{before(listRefunds, mark("409 in progress")), refund("201"), expectSummary(refunded)}, 1},
		"the first run sends": {[]step{before(makeRefund, mark("409 in progress")), refund("201"), expectSummary(refunded)}, 1},
		"a resumed run lists": {
			[]step{
				makeUnavailable(listRefunds), refund("503 unavailable, 2s"),
				before(listRefunds, mark("409 in progress")), retry("503 outcome unknown, 10m0s"),
				func(f *fixture) { f.ageLastRun(11 * time.Minute) }, retry(closed), expectSummary(notRefunded),
			}, 0,
		},
		"the sent one arrives after the mark": {
			[]step{
				loseRequest(makeRefund), refund("503 outcome unknown, 1s"), mark("503 outcome unknown, 10m0s"),
				refundArrives, retry("201"), expectSummary(refunded),
			}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{connections: 4}, createPaid(visa))
			f.do(test.steps...)
			f.do(expectRefundsAtProvider(test.made))
			checkRefundInvariants(t, f)
		})
	}
}

// refundArrives executes the call of an earlier run.
func refundArrives(f *fixture) {
	f.do(refundAtProvider("amount", "1800", "metadata[account_id]", f.Account.String(), "metadata[order_id]", orderID(f.Account, f.key).String(),
		"metadata[refund_id]", refundID(f.Account, f.refundKey()).String()))
}
