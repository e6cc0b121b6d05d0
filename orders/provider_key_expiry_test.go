package orders_test

import (
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// age is longer than the provider keeps an idempotency key.
const age = 25 * time.Hour

// newOldFixture returns a fixture whose provider's clock is a day late, until passDay.
// Its charge window is longer than that.
func newOldFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, options{clock: func() time.Time { return time.Now().Add(-age) }, chargeWindow: 3 * age})
}

// passDay lets a day pass: the provider's idempotency keys expire.
func (f *fixture) passDay() {
	f.t.Helper()
	f.stripe.Advance(age)
	f.backdate(age)
	f.transport.reset()
}

// After a day the provider's key has expired: the same request would create, or
// charge, another intent (R12).
func TestProviderKeyExpired(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card    string
		faults  []stripetest.Rule // during the first request, a day ago
		first   string
		later   []stripetest.Rule // during the second request, if there is one
		second  string
		calls   string
		want    string
		intents int
	}{
		"create: response lost": {
			faults: always(stripetest.CloseAfter, createEndpoint), first: "unavailable 1s",
			calls: "list 200, get 200, confirm 200", want: "201", intents: 1,
		},
		"create: request lost": {
			faults: always(stripetest.CloseBefore, createEndpoint), first: "unavailable 1s",
			calls: "list 200, create 200, get 200, confirm 200", want: "201", intents: 1,
		},
		"create: stored 500 under two keys": {
			faults: always(stripetest.ErrorAfter, createEndpoint), first: "unavailable 30s",
			calls: "list 200, get 200, confirm 200", want: "201", intents: 2,
		},
		"create: response lost, and the list unavailable": {
			faults: always(stripetest.CloseAfter, createEndpoint), first: "unavailable 1s",
			later: always(stripetest.Unavailable, listEndpoint), second: "unavailable 2s",
			calls: "list 503 ×3, list 200, get 200, confirm 200", want: "201", intents: 1,
		},
		"confirm: request lost": {
			faults: always(stripetest.CloseBefore, confirmEndpoint), first: "unknown 1s",
			calls: "get 200, confirm 200", want: "201", intents: 1,
		},
		"confirm: response lost": {
			faults: always(stripetest.CloseAfter, confirmEndpoint, getEndpoint), first: "unknown 1s",
			calls: "get 200", want: "201", intents: 1,
		},
		"confirm: response lost, card declined": {
			card:   "pm_card_chargeDeclinedIncorrectCvc",
			faults: always(stripetest.CloseAfter, confirmEndpoint, getEndpoint), first: "unknown 1s",
			calls: "get 200, cancel 200", want: "402 incorrect_cvc incorrect_cvc", intents: 1,
		},
		"payment in process for days": {
			card: stripetest.ProcessingCard, first: "unknown 30s",
			second: "unknown 30s",
			calls:  "get 200 ×2", want: "201", intents: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newOldFixture(t)
			if test.card == "" {
				test.card = visa
			}
			require.Equal(t, test.first, outcomeOf(f.createDuring(test.card, test.faults)))
			f.passDay()
			if test.second != "" {
				require.Equal(t, test.second, outcomeOf(f.createDuring(test.card, test.later)))
			}
			if test.card == stripetest.ProcessingCard {
				settlePayment(true)(f)
			}
			require.Equal(t, test.want, outcomeOf(f.resume()))
			require.Equal(t, test.calls, f.transport.calls())
			require.Len(t, f.intents(), test.intents)
			f.checkFinal()
		})
	}
}

func (f *fixture) createDuring(card string, rules []stripetest.Rule) (idempotency.Result, error) {
	f.t.Helper()
	for _, rule := range rules {
		defer f.stripe.Inject(rule).Release()
	}
	return f.create(card)
}

// Before that, the create is repeated under its key, without the list.
func TestProviderKeyExpired_notYet(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	require.Equal(t, "unavailable 1s", outcomeOf(f.createDuring(visa, always(stripetest.CloseAfter, createEndpoint))))
	f.backdate(23*time.Hour - time.Minute)
	f.transport.reset()
	require.Equal(t, "201", outcomeOf(f.create(visa)))
	require.Equal(t, "create 200, get 200, confirm 200", f.transport.calls())
	require.Len(t, f.intents(), 1)
	f.checkFinal()
}

// An incomplete list does not prove that there is no intent.
func TestProviderKeyExpired_incompleteList(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t)
	require.Equal(t, "unavailable 1s", outcomeOf(f.createDuring(visa, always(stripetest.CloseAfter, createEndpoint))))
	for i := range 100 {
		f.outOfBand("/v1/payment_intents", url.Values{"amount": {strconv.Itoa(orderAmount)}, "currency": {"usd"}, "metadata[order_id]": {"another-" + strconv.Itoa(i)}})
	}
	f.passDay()
	require.Equal(t, "unavailable 2s", outcomeOf(f.createDuring(visa, always(stripetest.NextPageError, listEndpoint))))
	require.Equal(t, "list 200, list 500 ×3", f.transport.calls())
	require.Equal(t, "201", outcomeOf(f.create(visa)))
	require.Equal(t, "list 200, list 500 ×3, list 200 ×2, get 200, confirm 200", f.transport.calls())
	f.checkFinal()
}

// After a restore of the database an order may have several intents. The run adopts
// the one with the highest precedence, so that no charge contradicts a response that
// a client may have received.
func TestProviderKeyExpired_severalIntents(t *testing.T) {
	t.Parallel()
	confirmed := func(f *fixture, path string) { f.outOfBand(path+"/confirm", url.Values{"off_session": {"true"}}) }
	cancelled := func(f *fixture, path string) { f.outOfBand(path+"/cancel", nil) }
	for name, test := range map[string]struct {
		card   string
		ending func(f *fixture, path string)
		want   string
		calls  string
	}{
		"one charged":         {visa, confirmed, "201", "list 200, get 200"},
		"one declined":        {"pm_card_visa_chargeDeclined", confirmed, "402 card_declined generic_decline", "list 200, get 200, cancel 200"},
		"one cancelled":       {visa, cancelled, "422 payment_intent_canceled", "list 200, get 200"},
		"one processing":      {stripetest.ProcessingCard, confirmed, "unknown 30s", "list 200, get 200"},
		"one requires action": {"pm_card_authenticationRequired", func(f *fixture, path string) { f.outOfBand(path+"/confirm", nil) }, "action required", "list 200, get 200"},
	} {
		for _, order := range []string{"first", "last"} {
			t.Run(name+", created "+order, func(t *testing.T) {
				t.Parallel()
				f := newOldFixture(t)
				require.Equal(t, "unavailable 1s", outcomeOf(f.createDuring(visa, always(stripetest.CloseBefore, createEndpoint))))
				cards := []string{test.card, visa, visa}
				if order == "last" {
					slices.Reverse(cards)
				}
				var paths []string
				for _, card := range cards {
					paths = append(paths, "/v1/payment_intents/"+f.outOfBand("/v1/payment_intents", url.Values{
						"amount": {strconv.Itoa(orderAmount)}, "currency": {"usd"}, "payment_method": {card},
						"metadata[order_id]":                         {orderID(f.account, f.key).String()},
						"automatic_payment_methods[enabled]":         {"true"},
						"automatic_payment_methods[allow_redirects]": {"never"},
					}).ID)
				}
				if order == "last" {
					slices.Reverse(paths)
				}
				test.ending(f, paths[0])
				f.passDay()

				require.Equal(t, test.want, outcomeOf(f.resume()))
				require.Equal(t, test.calls, f.transport.calls())
				switch test.card {
				case stripetest.ProcessingCard:
					settlePayment(true)(f)
				case "pm_card_authenticationRequired":
					authenticate(true)(f)
				}
				if result, err := f.resume(); err == nil && !result.Replayed {
					require.Equal(t, "201", outcomeOf(result, err))
				}
				f.checkFinal()
			})
		}
	}
}

// An intent with our order's id and another amount is neither charged nor ignored.
func TestProviderKeyExpired_otherAmount(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t)
	require.Equal(t, "unavailable 1s", outcomeOf(f.createDuring(visa, always(stripetest.CloseBefore, createEndpoint))))
	f.outOfBand("/v1/payment_intents", url.Values{
		"amount": {"4400"}, "currency": {"usd"}, "payment_method": {visa},
		"metadata[order_id]": {orderID(f.account, f.key).String()},
	})
	f.passDay()
	for range 2 {
		require.Equal(t, "unknown 1m0s", outcomeOf(f.resume()))
	}
	require.Equal(t, 2, f.log.errorLines())
	require.Equal(t, "list 200, get 200 ×2", f.transport.calls())
	require.Empty(t, f.stripe.Charges())
	require.Len(t, f.intents(), 1)
}
