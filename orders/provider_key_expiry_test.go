package orders_test

import (
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// After this age, the provider has forgotten an idempotency key.
const age = 25 * time.Hour

func newOldFixture(t *testing.T, steps ...step) *fixture {
	t.Helper()
	return newFixture(t, options{clock: aDayAgo, chargeWindow: 3 * age}, steps...)
}

func (f *fixture) passDay() {
	f.t.Helper()
	f.Stripe.Advance(age)
	f.nextDay(f.t)
}

func (f *fixture) nextDay(t *testing.T) *fixture {
	t.Helper()
	f.t = t
	f.backdate(age)
	f.transport.reset()
	return f
}

// After a day, the same request would create another intent (R12).
func TestProviderKeyExpired(t *testing.T) {
	t.Parallel()
	shared := newOldFixture(t)
	tests := map[string]struct {
		past    []step // a day ago
		now     []step
		intents int
	}{
		"create: response lost": {[]step{loseResponse(createIntent), create("503 unavailable, 1s")}, []step{
			retry("201"), expectCalls("search 200, get 200 ×2, confirm 200"),
		}, 1},
		"create: request lost": {[]step{loseRequest(createIntent), create("503 unavailable, 1s")}, []step{
			retry(notCreated), expectCalls("search 200, get 200"),
		}, 0},
		"create: stored 500 under two keys": {[]step{fault(stripetest.ErrorAfter, createIntent), create("503 unavailable, 30s")}, []step{
			retry("201"), expectCalls("search 200, get 200 ×3, confirm 200"),
		}, 2},
		"confirm: request lost": {[]step{loseRequest(confirm), create("503 outcome unknown, 1s")}, []step{
			retry("201"), expectCalls("get 200, confirm 200"),
		}, 1},
		"confirm: response lost": {[]step{loseResponse(confirm, getIntent), create("503 outcome unknown, 1s")}, []step{
			retry("201"), expectCalls("get 200"),
		}, 1},
		"confirm: response lost, card declined": {[]step{
			payWith("pm_card_chargeDeclinedIncorrectCvc"),
			loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"),
		}, []step{
			retry("402 incorrect_cvc incorrect_cvc"), expectCalls("get 200, cancel 200"),
		}, 1},
		"payment in process for days": {[]step{inProcess}, []step{
			retry("503 outcome unknown, 30s"), paymentSucceeds,
			retry("201"), expectCalls("get 200 ×2"),
		}, 1},
	}
	parts := map[string]*fixture{}
	for name, test := range tests {
		f := shared.withNewKey(t)
		f.byCompleter = true
		f.do(test.past...)
		parts[name] = f
	}
	shared.Stripe.Advance(age)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := parts[name].nextDay(t)
			f.do(test.now...)
			require.Len(t, f.intents(), test.intents)
			f.checkResponse()
		})
	}
	checkInvariants(t, shared)
}

func TestProviderKeyExpired_severalIntents(t *testing.T) {
	t.Parallel()
	shared := newOldFixture(t)
	tests := map[string]struct {
		card    string
		act     string // confirm or cancel
		outcome string
		calls   string
	}{
		"one charged":         {visa, "confirm", "201", "search 200, get 200 ×4"},
		"one declined":        {declinedCard, "confirm", "402 card_declined generic_decline", "search 200, get 200 ×4, cancel 200"},
		"one cancelled":       {visa, "cancel", "422 payment_intent_canceled", "search 200, get 200 ×4"},
		"one processing":      {stripetest.ProcessingCard, "confirm", "503 outcome unknown, 30s", "search 200, get 200 ×4"},
		"one requires action": {challengeCard, "confirm", "202 action required", "search 200, get 200 ×4"},
	}
	parts := map[string]*fixture{}
	for name, test := range tests {
		f := shared.withNewKey(t)
		f.do(loseRequest(createIntent), create("503 unavailable, 1s"))
		f.insertIntent(visa, orderAmount)
		id := f.insertIntent(test.card, orderAmount)
		f.insertIntent(visa, orderAmount)
		f.outOfBand("/v1/payment_intents/"+id+"/"+test.act, nil)
		parts[name] = f
	}
	shared.Stripe.Advance(age)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := parts[name].nextDay(t)
			f.do(retry(test.outcome), expectCalls(test.calls))
			switch test.card {
			case stripetest.ProcessingCard:
				f.do(paymentSucceeds, retry("201"))
			case challengeCard:
				f.do(approve, retry("201"))
			}
			f.checkResponse()
		})
	}
	checkInvariants(t, shared)
}

func (f *fixture) insertIntent(card string, amount int) string {
	f.t.Helper()
	return f.outOfBand("/v1/payment_intents", url.Values{
		"amount": {strconv.Itoa(amount)}, "currency": {"usd"}, "payment_method": {card},
		"metadata[order_id]":                         {orderID(f.Account, f.key).String()},
		"automatic_payment_methods[enabled]":         {"true"},
		"automatic_payment_methods[allow_redirects]": {"never"},
	}).ID
}

func TestProviderKeyExpired_otherAmount(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, loseRequest(createIntent), create("503 unavailable, 1s"))
	f.insertIntent(visa, orderAmount+100)
	f.passDay()
	f.do(retry("503 outcome unknown, 1m0s"), retry("503 outcome unknown, 1m0s"), expectCalls("search 200, get 200 ×3"))
	require.Equal(t, 2, f.log.errorLines())
	require.Empty(t, f.Stripe.Charges())
	require.Len(t, f.intents(), 1)
}
