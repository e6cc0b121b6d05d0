package orders_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// loseRows leaves the state after a failover that lost all rows of the order.
func loseRows(f *fixture) {
	f.t.Helper()
	order := orderID(f.Account, f.key)
	f.exec("DELETE FROM staged_jobs WHERE args->>'order_id' = $1", order.String())
	f.exec("DELETE FROM audit_records WHERE resource_id = $1", order.String())
	f.exec("DELETE FROM orders WHERE id = $1", order)
	f.exec("DELETE FROM idempotency_keys WHERE id = $1", idempotency.KeyID(f.Account, f.key))
	f.responses.reset()
	f.transport.reset()
}

func loseIntent(f *fixture) {
	f.t.Helper()
	f.exec("UPDATE idempotency_keys SET recovery_point = 'order_created' WHERE id = $1", idempotency.KeyID(f.Account, f.key))
	f.exec("UPDATE orders SET payment_intent_id = NULL WHERE id = $1", orderID(f.Account, f.key))
	f.transport.reset()
}

func pass(d time.Duration) step {
	return func(f *fixture) {
		f.t.Helper()
		f.Stripe.Advance(d)
		f.backdate(d)
	}
}

// newLostOrder returns a fixture whose order was charged, lost, and inserted again by a retry.
func newLostOrder(t *testing.T, o options, retried, resumed time.Duration) *fixture {
	t.Helper()
	o.clock = func() time.Time { return time.Now().Add(-retried - resumed) }
	f := newFixture(t, o, create("201"), loseRows, pass(retried), rateLimit(createIntent), retry("503 unavailable, 2s"), pass(resumed))
	f.transport.reset()
	return f
}

// The charge is older than the order that the retry inserted, and the provider key may have
// expired (R12).
func TestLostRows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		retried, resumed time.Duration
		run              step
	}{
		"an operator ends the order":            {23*time.Hour + 30*time.Minute, time.Minute, resolve("201")},
		"the charge window is over":             {22 * time.Hour, 25 * time.Hour, retry("201")},
		"the next run comes three hours later":  {22 * time.Hour, 3 * time.Hour, retry("201")},
		"the next run comes almost a day later": {22 * time.Hour, 22*time.Hour + 30*time.Minute, retry("201")},
		"the key expires in between":            {23*time.Hour + 58*time.Minute, 10 * time.Minute, retry("201")},
		"the key expires, by an operator":       {23*time.Hour + 58*time.Minute, 10 * time.Minute, retryByOperator("201")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLostOrder(t, options{}, test.retried, test.resumed)
			f.do(test.run, expectCalls("search 200, get 200 ×2"), expectCharges(1), expectIntents("succeeded"))
			f.checkFinal()
		})
	}
}

// In an account without a search, the create finds the charge for as long as the provider remembers the key.
func TestLostRows_noSearch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		resumed time.Duration
		steps   []step
	}{
		"while creates are sent": {20 * time.Minute, []step{retry("201"), expectCalls("search 400, create 200, get 200")}},
		"later": {time.Hour, []step{
			retry("503 unavailable, 1m0s"), retry("201"), expectCalls("search 400, search 200, get 200 ×2"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLostOrder(t, options{}, 23*time.Hour, test.resumed)
			f.do(fault(stripetest.NoSearch, search))
			f.do(test.steps...)
			f.do(expectCharges(1), expectIntents("succeeded"))
			f.checkFinal()
		})
	}
}

func TestLostRows_searchLags(t *testing.T) {
	t.Parallel()
	f := newLostOrder(t, options{searchDelay: time.Hour}, 50*time.Minute, 5*time.Minute)
	f.do(resolve("201"), expectCalls("search 200, create 200, get 200"), expectCharges(1))
	f.checkFinal()
}

// The search finds only an unconfirmed intent, but the create returns the charged one.
func TestLostRows_unconfirmedIntent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, insertIntents(visa), pass(time.Minute)) // as after a 500
	f.do(loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"), loseIntent)
	f.do(retry("201"), expectCalls("search 200, get 200, create 200, get 200"), expectCharges(1))
	f.checkFinal()
}

func TestLostRows_oldUnconfirmedIntent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{clock: aDayAgo}, loseResponse(createIntent), create("503 unavailable, 1s"), loseRows, pass(23*time.Hour+58*time.Minute))
	f.do(rateLimit(createIntent), retry("503 unavailable, 2s"), pass(10*time.Minute))
	f.do(retry("201"), expectCharges(1), expectIntents("succeeded", "requires_confirmation"))
	f.checkFinal()
}

// The rows are lost twice, and the search finds only the first run's intent, which is not charged. The
// second run charged another one, because the provider key was forgotten.
func TestLostRows_twice(t *testing.T) {
	t.Parallel()
	for first, then := range map[string]step{"requires_confirmation": func(*fixture) {}, "canceled": func(f *fixture) {
		f.outOfBand("/v1/payment_intents/"+f.intents()[0].ID+"/cancel", nil)
	}} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{searchDelay: time.Hour, clock: aDayAgo})
			f.do(loseResponse(createIntent), create("503 unavailable, 1s"), then, loseRows)
			f.do(pass(24*time.Hour+5*time.Minute), create("201"), loseRows, pass(5*time.Minute))
			f.do(rateLimit(createIntent), retry("503 unavailable, 2s"), pass(time.Minute))
			f.transport.reset()
			f.do(retry("201"), expectCalls("search 200, get 200, create 200, get 200"))
			f.do(expectCharges(1), expectIntents("succeeded", first))
			f.checkFinal()
		})
	}
}

// reconcile --lost-rows --fix has cancelled the intent, but the provider replays the responses of
// the lost run, whose client secret is of no use.
func TestLostRows_cancelledAtProvider(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, challenge, cancelAtProvider, loseRows)
	f.do(create("422 payment_intent_canceled"), expectCalls("create 200, get 200"), expectCharges(0))
	f.checkFinal()
}

// Ids are derived, so the retry finds the same payment (R5).
func TestCreate_rowsLostInFailover(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card    string
		calls   string
		outcome string
	}{
		"paid order":         {visa, "create 200, get 200", "201"},
		"declined order":     {declinedCard, "create 200, get 200, cancel 200", "402 card_declined generic_decline"},
		"payment in process": {stripetest.ProcessingCard, "create 200, get 200", "503 outcome unknown, 30s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, payWith(test.card), create(test.outcome))
			before, intents := f.getOrder(), f.intents()
			f.do(loseRows, retry(test.outcome), expectCalls(test.calls))
			require.Equal(t, before.ID, f.getOrder().ID)
			require.Equal(t, before.PaymentIntentID, f.getOrder().PaymentIntentID)
			require.Equal(t, intents[0].ID, f.intents()[0].ID)
			require.Len(t, f.intents(), 1)
			if test.card == stripetest.ProcessingCard {
				f.do(paymentSucceeds, retry("201"))
			}
			f.checkFinal()
		})
	}
}
