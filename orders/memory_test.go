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

// age is more than the provider remembers a key for.
const age = 25 * time.Hour

// openOldShop is a shop whose provider lived a day ago, until wait.
func openOldShop(t *testing.T) *shop {
	t.Helper()
	return openShop(t, terms{clock: func() time.Time { return time.Now().Add(-age) }})
}

// wait lets a day pass: the provider forgets its keys.
func (s *shop) wait() {
	s.t.Helper()
	s.stripe.Advance(age)
	s.backDate(age)
	s.wire.forget()
}

// A day later the provider has forgotten the key, and would make, or charge,
// whatever it is asked to once more (R12).
func TestForgottenKeys(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card    string
		faults  []stripetest.Rule // a day ago
		told    string
		later   []stripetest.Rule // now, at first
		again   string
		calls   string
		answer  string
		intents int
	}{
		"the create arrived": {
			faults: failing(stripetest.CloseAfter, createEndpoint), told: "unavailable 1s",
			calls: "list 200, get 200, confirm 200", answer: "201", intents: 1,
		},
		"the create did not arrive": {
			faults: failing(stripetest.CloseBefore, createEndpoint), told: "unavailable 1s",
			calls: "list 200, create 200, get 200, confirm 200", answer: "201", intents: 1,
		},
		"the create's key holds a 500, and so does the next": {
			faults: failing(stripetest.ErrorAfter, createEndpoint), told: "unavailable 30s",
			calls: "list 200, get 200, confirm 200", answer: "201", intents: 2,
		},
		"the create arrived, and the provider does not list": {
			faults: failing(stripetest.CloseAfter, createEndpoint), told: "unavailable 1s",
			later: failing(stripetest.Unavailable, listEndpoint), again: "unavailable 2s",
			calls: "list 503 ×3, list 200, get 200, confirm 200", answer: "201", intents: 1,
		},
		"the confirm did not arrive": {
			faults: failing(stripetest.CloseBefore, confirmEndpoint), told: "unknown 1s",
			calls: "get 200, confirm 200", answer: "201", intents: 1,
		},
		"the confirm arrived": {
			faults: failing(stripetest.CloseAfter, confirmEndpoint, getEndpoint), told: "unknown 1s",
			calls: "get 200", answer: "201", intents: 1,
		},
		"the confirm arrived, and the card was declined": {
			card:   "pm_card_chargeDeclinedIncorrectCvc",
			faults: failing(stripetest.CloseAfter, confirmEndpoint, getEndpoint), told: "unknown 1s",
			calls: "get 200", answer: "402 incorrect_cvc incorrect_cvc", intents: 1,
		},
		"the payment takes days": {
			card: stripetest.ProcessingCard, told: "unknown 30s",
			again: "unknown 30s",
			calls: "get 200 ×2", answer: "201", intents: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openOldShop(t)
			if test.card == "" {
				test.card = visa
			}
			require.Equal(t, test.told, say(s.buyWith(test.card, test.faults)))
			s.wait()
			if test.again != "" {
				require.Equal(t, test.again, say(s.buyWith(test.card, test.later)))
			}
			if test.card == stripetest.ProcessingCard {
				settle(true)(s)
			}
			require.Equal(t, test.answer, say(s.resume()))
			require.Equal(t, test.calls, s.wire.said())
			require.Len(t, s.intents(), test.intents)
			s.checkFinal()
		})
	}
}

func (s *shop) buyWith(card string, rules []stripetest.Rule) (idempotency.Result, error) {
	s.t.Helper()
	for _, rule := range rules {
		defer s.stripe.Inject(rule).Release()
	}
	return s.buy(card)
}

// Until then the key itself is the shorter way.
func TestForgottenKeys_notYet(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	require.Equal(t, "unavailable 1s", say(s.buyWith(visa, failing(stripetest.CloseAfter, createEndpoint))))
	s.backDate(23*time.Hour - time.Minute)
	s.wire.forget()
	require.Equal(t, "201", say(s.buy(visa)))
	require.Equal(t, "create 200, get 200, confirm 200", s.wire.said())
	require.Len(t, s.intents(), 1)
	s.checkFinal()
}

// A list that breaks off proves nothing.
func TestForgottenKeys_longList(t *testing.T) {
	t.Parallel()
	s := openOldShop(t)
	require.Equal(t, "unavailable 1s", say(s.buyWith(visa, failing(stripetest.CloseAfter, createEndpoint))))
	for i := range 100 {
		s.behind("/v1/payment_intents", url.Values{"amount": {strconv.Itoa(basketAmount)}, "currency": {"usd"}, "metadata[order_id]": {"another-" + strconv.Itoa(i)}})
	}
	s.wait()
	require.Equal(t, "unavailable 2s", say(s.buyWith(visa, failing(stripetest.NextPageError, listEndpoint))))
	require.Equal(t, "list 200, list 500 ×3", s.wire.said())
	require.Equal(t, "201", say(s.buy(visa)))
	require.Equal(t, "list 200, list 500 ×3, list 200 ×2, get 200, confirm 200", s.wire.said())
	s.checkFinal()
}

// A database that was restored may know less than the provider. Of several
// intents of one order, that one counts on which most may hang: an answer that a
// client was given before must not be contradicted by a charge.
func TestForgottenKeys_severalIntents(t *testing.T) {
	t.Parallel()
	confirmed := func(s *shop, path string) { s.behind(path+"/confirm", url.Values{"off_session": {"true"}}) }
	cancelled := func(s *shop, path string) { s.behind(path+"/cancel", nil) }
	for name, test := range map[string]struct {
		card   string
		ending func(s *shop, path string)
		answer string
		calls  string
	}{
		"one was charged":       {visa, confirmed, "201", "list 200, get 200"},
		"one was declined":      {"pm_card_visa_chargeDeclined", confirmed, "402 card_declined generic_decline", "list 200, get 200"},
		"one was cancelled":     {visa, cancelled, "422 payment_intent_canceled", "list 200, get 200"},
		"one is under way":      {stripetest.ProcessingCard, confirmed, "unknown 30s", "list 200, get 200"},
		"one waits for someone": {"pm_card_authenticationRequired", func(s *shop, path string) { s.behind(path+"/confirm", nil) }, "402 authentication_required authentication_required", "list 200, get 200, cancel 200"},
	} {
		for _, order := range []string{"first", "last"} {
			t.Run(name+", made "+order, func(t *testing.T) {
				t.Parallel()
				s := openOldShop(t)
				require.Equal(t, "unavailable 1s", say(s.buyWith(visa, failing(stripetest.CloseBefore, createEndpoint))))
				cards := []string{test.card, visa, visa}
				if order == "last" {
					slices.Reverse(cards)
				}
				var paths []string
				for _, card := range cards {
					paths = append(paths, "/v1/payment_intents/"+s.behind("/v1/payment_intents", url.Values{
						"amount": {strconv.Itoa(basketAmount)}, "currency": {"usd"}, "payment_method": {card},
						"metadata[order_id]":                         {orderOf(s.account, s.key).String()},
						"automatic_payment_methods[enabled]":         {"true"},
						"automatic_payment_methods[allow_redirects]": {"never"},
					}).ID)
				}
				if order == "last" {
					slices.Reverse(paths)
				}
				test.ending(s, paths[0])
				s.wait()

				require.Equal(t, test.answer, say(s.resume()))
				require.Equal(t, test.calls, s.wire.said())
				if test.card == stripetest.ProcessingCard {
					settle(true)(s)
					require.Equal(t, "201", say(s.resume()))
				}
				s.checkFinal()
			})
		}
	}
}

// An intent with our order's id and another amount is neither charged nor
// passed over.
func TestForgottenKeys_anotherAmount(t *testing.T) {
	t.Parallel()
	s := openOldShop(t)
	require.Equal(t, "unavailable 1s", say(s.buyWith(visa, failing(stripetest.CloseBefore, createEndpoint))))
	s.behind("/v1/payment_intents", url.Values{
		"amount": {"4400"}, "currency": {"usd"}, "payment_method": {visa},
		"metadata[order_id]": {orderOf(s.account, s.key).String()},
	})
	s.wait()
	for range 2 {
		require.Equal(t, "unknown 1m0s", say(s.resume()))
	}
	require.Equal(t, 2, s.log.alarms())
	require.Equal(t, "list 200, get 200 ×2", s.wire.said())
	require.Empty(t, s.stripe.Charges())
	require.Len(t, s.intents(), 1)
}
