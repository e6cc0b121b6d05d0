package orders_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func markedRefund(f *fixture) { f.requireMark("refunds", refundID(f.Account, f.refundKey())) }

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
