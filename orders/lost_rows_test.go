package orders_test

import (
	"testing"
	"time"

	"example.com/orders-api/idempotency"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

func loseIntent(f *Fixture) {
	f.T.Helper()
	f.Exec("UPDATE idempotency_keys SET recovery_point = 'order_created' WHERE id = $1", idempotency.KeyID(f.Account, f.Key))
	f.Exec("UPDATE orders SET payment_intent_id = NULL WHERE id = $1", OrderID(f.Account, f.Key))
	f.Transport.Reset()
}

func pass(d time.Duration) Step {
	return func(f *Fixture) {
		f.T.Helper()
		f.Stripe.Advance(d)
		f.Backdate(d)
	}
}

// An order was charged and lost, and a retry has inserted it again. So the charge is older than the order, and
// the provider key may have expired (R12). In an account without a search, the create finds the charge for as long
// as the provider remembers the key.
func TestLostRows(t *testing.T) {
	t.Parallel()
	const found = "search 200, get 200 ×2"
	noSearch := Fault(stripetest.NoSearch, Search)
	for name, test := range map[string]struct {
		retried     time.Duration // from the charge to the retry that inserts the order again
		resumed     time.Duration // from this retry to the next run
		searchDelay time.Duration
		steps       []Step
		calls       string
	}{
		"an operator ends the order":            {23*time.Hour + 30*time.Minute, time.Minute, 0, []Step{resolve("201")}, found},
		"the charge window is over":             {22 * time.Hour, 25 * time.Hour, 0, []Step{Retry("201")}, found},
		"the next run comes three hours later":  {22 * time.Hour, 3 * time.Hour, 0, []Step{Retry("201")}, found},
		"the next run comes almost a day later": {22 * time.Hour, 22*time.Hour + 30*time.Minute, 0, []Step{Retry("201")}, found},
		"the key expires in between":            {23*time.Hour + 58*time.Minute, 10 * time.Minute, 0, []Step{Retry("201")}, found},
		"the key expires, by an operator":       {23*time.Hour + 58*time.Minute, 10 * time.Minute, 0, []Step{retryByOperator("201")}, found},
		"no search, while creates are sent":     {23 * time.Hour, 20 * time.Minute, 0, []Step{noSearch, Retry("201")}, "search 400, create 200, get 200"},
		"no search, later": {
			23 * time.Hour, time.Hour, 0, []Step{noSearch, Retry("503 unavailable, 1m0s"), Retry("201")}, "search 400, " + found,
		},
		"the search lags": {50 * time.Minute, 5 * time.Minute, time.Hour, []Step{resolve("201")}, "search 200, create 200, get 200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := func() time.Time { return time.Now().Add(-test.retried - test.resumed) }
			f := NewFixture(t, Setup{Clock: clock, SearchDelay: test.searchDelay}, Create("201"), LoseRows, pass(test.retried))
			f.Do(RateLimit(CreateIntent), Retry("503 unavailable, 2s"), pass(test.resumed))
			f.Transport.Reset()
			f.Do(test.steps...)
			f.Do(ExpectCalls(test.calls), ExpectCharges(1), expectIntents("succeeded"))
			f.CheckFinal()
		})
	}
}

// The search finds only an unconfirmed intent, but the create returns the charged one.
func TestLostRows_unconfirmedIntent(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, insertIntents(Visa), pass(time.Minute)) // as after a 500
	f.Do(LoseResponse(Confirm, GetIntent), Create("503 outcome unknown, 1s"), loseIntent)
	f.Do(Retry("201"), ExpectCalls("search 200, get 200, create 200, get 200"), ExpectCharges(1))
	f.CheckFinal()
}

func TestLostRows_oldUnconfirmedIntent(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Clock: aDayAgo}, LoseResponse(CreateIntent), Create("503 unavailable, 1s"), LoseRows, pass(23*time.Hour+58*time.Minute))
	f.Do(RateLimit(CreateIntent), Retry("503 unavailable, 2s"), pass(10*time.Minute))
	f.Do(Retry("201"), ExpectCharges(1), expectIntents("succeeded", "requires_confirmation"))
	f.CheckFinal()
}

// The rows are lost twice, and the search finds only the first run's intent, which is not charged. The
// second run charged another one, because the provider key was forgotten.
func TestLostRows_twice(t *testing.T) {
	t.Parallel()
	for first, then := range map[string]Step{"requires_confirmation": func(*Fixture) {}, "canceled": func(f *Fixture) {
		f.OutOfBand("/v1/payment_intents/" + f.Intents()[0].ID + "/cancel")
	}} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{SearchDelay: time.Hour, Clock: aDayAgo})
			f.Do(LoseResponse(CreateIntent), Create("503 unavailable, 1s"), then, LoseRows)
			f.Do(pass(24*time.Hour+5*time.Minute), Create("201"), LoseRows, pass(5*time.Minute))
			f.Do(RateLimit(CreateIntent), Retry("503 unavailable, 2s"), pass(time.Minute))
			f.Transport.Reset()
			f.Do(Retry("201"), ExpectCalls("search 200, get 200, create 200, get 200"))
			f.Do(ExpectCharges(1), expectIntents("succeeded", first))
			f.CheckFinal()
		})
	}
}

// Stripe accepts a card that is not saved only once. So after it has forgotten the provider key, it refuses the card
// of a charge whose order was lost, and the search finds this charge.
func TestLostRows_usedCard(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Clock: aDayAgo})
	card := f.OutOfBand("/v1/payment_intents", "amount", "100", "currency", "usd", "payment_method", Visa).PaymentMethod
	f.Do(PayWith(card), Create("201"), LoseRows, pass(25*time.Hour))
	f.Do(Create("201"), ExpectCalls("create 400, search 200, get 200 ×2"), ExpectCharges(1), expectIntents("succeeded"))
	f.CheckFinal()
}

// Ids are derived, so the retry finds the same payment (R5).
func lostOutcomes() scenarios {
	const declined, processing = "402 card_declined generic_decline", "503 outcome unknown, 30s"
	return scenarios{
		"paid": {Create("201"), LoseRows, Create("201"), ExpectCalls("create 200, get 200"), expectIntents("succeeded")},
		"declined": {
			PayWith(DeclinedCard), Create(declined), LoseRows, Create(declined), ExpectCalls("create 200, get 200, cancel 200"), expectIntents("canceled"),
		},
		"processing": {InProcess, LoseRows, Create(processing), ExpectCalls("create 200, get 200"), PaymentSucceeds, Create("201"), expectIntents("succeeded")},
	}
}
