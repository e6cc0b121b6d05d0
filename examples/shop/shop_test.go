package shop_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

const (
	visa      = "pm_card_visa"
	declined  = "pm_card_visa_chargeDeclinedInsufficientFunds"
	challenge = "pm_card_threeDSecure2Required"
)

// The key is created with the basket, stored with the request before the first attempt, and
// dropped after the 201.
func TestPay_keyLife(t *testing.T) {
	t.Parallel()
	f, b, path := newPurchase(t)
	created := f.row(path)
	require.NotEmpty(t, *created.IdempotencyKey)
	require.Nil(t, created.Request)
	require.Equal(t, path, b.fill(), "another tab has the same basket")
	b.get(path)
	require.Equal(t, created, f.row(path), "a page view changes nothing")

	f.setNetwork(cut, 10*time.Millisecond)
	require.Equal(t, "paying", b.pay(path, visa).State)
	stored := f.row(path)
	require.Equal(t, created.IdempotencyKey, stored.IdempotencyKey)
	require.Contains(t, string(stored.Request), visa)
	require.Equal(t, 1, stored.Attempts)
	require.Contains(t, b.get("/shop").text, "is in progress")
	require.Equal(t, path, b.fill(), "no second basket")

	f.setNetwork("", time.Minute)
	require.Equal(t, "paid", b.pay(path, declined).State, "another card does not replace the stored one")
	paid := f.row(path)
	require.Nil(t, paid.IdempotencyKey)
	require.Equal(t, stored.Request, paid.Request)
	require.Len(t, f.Stripe.ChargesByOrder(*paid.OrderID), 1)
	require.Contains(t, b.get(path).text, "succeeded")
	require.Contains(t, b.get(path).text, *paid.OrderID)

	next := b.fill()
	require.NotEqual(t, path, next)
	require.NotEqual(t, created.IdempotencyKey, f.row(next).IdempotencyKey)
	require.Equal(t, "paid", b.pay(next, visa).State)
	require.Equal(t, "paid", b.pay(path, visa).State, "the page of the first purchase")
	require.Len(t, f.Stripe.Charges(), 2)
}

// payLost pays, but the shop receives no response until its patience ends. It returns when the API has
// charged the order.
func (f *fixture) payLost(b *browser, path string) {
	f.T.Helper()
	f.setNetwork(lost, 2*time.Second)
	require.Equal(f.T, "paying", b.pay(path, visa).State)
	require.Eventually(f.T, func() bool { return len(f.Stripe.Charges()) == 1 }, time.Minute, time.Millisecond)
}

func TestPay_declined(t *testing.T) {
	t.Parallel()
	f, b, path := newPurchase(t)
	first := f.row(path).IdempotencyKey
	got := b.pay(path, declined)
	require.Equal(t, "basket", got.State)
	require.Regexp(t, `^Nothing was charged\. .* insufficient funds\.`, got.Message)
	require.Nil(t, f.row(path).Request)
	require.NotEqual(t, first, f.row(path).IdempotencyKey, "retry is new-key")
	require.Contains(t, b.get(path).text, got.Message)
	require.Contains(t, b.get(path).text, `value="ada@example.com"`)
	require.Equal(t, got, b.resume(path), "a page that was loaded before")
	require.Equal(t, "paid", b.pay(path, visa).State)
	require.Len(t, f.Stripe.Charges(), 1)
}

// The customer has closed the browser at the bank's question. The shop's loop ends the purchase, or an event
// does, and then nothing polls.
func TestPay_approval(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		approve, event bool
		state          string
	}{
		"approved, loop":  {true, false, "paid"},
		"declined, loop":  {false, false, "basket"},
		"approved, event": {true, true, "paid"},
		"declined, event": {false, true, "basket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, b, path := newPurchase(t)
			asked := b.pay(path, challenge)
			require.Equal(t, "paying", asked.State)
			intent, _, found := strings.Cut(asked.ClientSecret, "_secret_")
			require.True(t, found)
			require.Equal(t, asked, b.resume(path), "after a reload")
			waiting := f.row(path)
			end := f.runOnce
			if test.event {
				end = func() {
					require.Equal(t, http.StatusNoContent, f.deliver(paidEvent(f.orderID())))
					require.Equal(t, waiting, f.row(path), "the response does not wait for the purchase")
					f.handleEvents()
				}
			}
			end() // too early, as an event of requires_action
			require.Equal(t, "paying", f.row(path).State, "the customer has not decided")

			require.NoError(t, f.Stripe.Authenticate(intent, test.approve))
			if test.event { // in place of the completer
				_, err := f.shop.Orders.Do(t.Context(), client.Request{Key: *waiting.IdempotencyKey, Path: "/v1/orders", Body: waiting.Request})
				require.Equal(t, test.approve, err == nil, err)
			}
			end()
			require.Equal(t, test.state, f.row(path).State)
			require.Equal(t, test.state, b.resume(path).State)
			require.Equal(t, test.approve, len(f.Stripe.Charges()) == 1)
		})
	}
}

// Two tabs with two cards make one request, and the card of the first one is charged.
func TestPay_twoTabs(t *testing.T) {
	t.Parallel()
	f, b, path := newPurchase(t)
	var tabs []<-chan error
	for _, card := range []string{visa, "pm_card_mastercard", visa, "pm_card_amex"} {
		tabs = append(tabs, b.postAsync(path, form(card)))
	}
	for _, tab := range tabs {
		require.NoError(t, <-tab)
	}
	require.Equal(t, "paid", b.resume(path).State)
	require.Len(t, f.Stripe.Charges(), 1)
	require.Equal(t, 1, f.count("idempotency_keys"))
}

// A correction keeps the key, but only if no earlier attempt can have used it.
func TestPay_corrected(t *testing.T) {
	t.Parallel()
	f, b, path := newPurchase(t)
	key := f.row(path).IdempotencyKey
	b.send("/shop/basket", url.Values{"tea": {"1"}, "kettle": {"1"}}, "")
	got := b.pay(path, visa)
	require.Equal(t, "basket", got.State)
	require.Contains(t, got.Message, "has changed", "the customer is never charged another amount than the page showed")
	require.Empty(t, f.Stripe.Requests())
	require.Equal(t, path, b.fill())

	invalid := form(visa)
	invalid.Set("email", "x")
	got = b.post(path, invalid)
	require.Equal(t, "basket", got.State)
	require.Contains(t, got.Message, "Nothing was charged. Please correct email: ")
	require.Equal(t, key, f.row(path).IdempotencyKey)

	f.network.mode.Store(wrongKey)
	got = b.pay(path, visa)
	require.Equal(t, "basket", got.State)
	require.Contains(t, got.Message, "cannot take payments")

	f.payLost(b, path)
	f.setNetwork(wrongKey, time.Minute)
	require.Equal(t, "paying", b.resume(path).State, "the first attempt may have charged the card")
	f.network.mode.Store("")
	require.Equal(t, "paid", b.resume(path).State)
	require.Len(t, f.Stripe.Charges(), 1)
}

// forget restores the table from a backup of the time before the payments.
const forget = "UPDATE shop.purchases SET state = 'basket', request = NULL, order_id = NULL, idempotency_key = $1"

// A shop that has lost its keys, such as after the restore of a backup, does not charge the purchase again: the
// reference names the first order. While that order waits for the customer's approval, the purchase waits for
// its end. If it has failed, the reference is free again.
func TestPay_keyLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card              string
		approves, charged bool // by the first order
	}{
		"paid":              {visa, false, true},
		"the card declined": {declined, false, false},
		"approved later":    {challenge, true, true},
		"declined later":    {challenge, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, b, path := newPurchase(t)
			key := *f.row(path).IdempotencyKey
			intent, _, asked := strings.Cut(b.pay(path, test.card).ClientSecret, "_secret_")
			require.Equal(t, test.card == challenge, asked)
			request := f.row(path).Request
			f.exec(forget, client.NewKey())
			if asked {
				require.Equal(t, "paying", b.pay(path, visa).State)
				require.Empty(t, f.Stripe.Charges())
				require.NoError(t, f.Stripe.Authenticate(intent, test.approves))
				_, err := f.shop.Orders.Do(t.Context(), client.Request{Key: key, Path: "/v1/orders", Body: request})
				require.Equal(t, test.approves, err == nil, err) // in place of the completer
			}
			require.Equal(t, "paid", b.pay(path, visa).State)
			require.Len(t, f.Stripe.Charges(), 1)
			first := idempotency.DeriveID("order", f.Account, idempotency.Key(key)).String()
			require.Equal(t, test.charged, *f.row(path).OrderID == first)
		})
	}
}

// A restored basket may have the reference of an order with other goods, or with another email address.
// The shop does not take that order as this payment.
func TestPay_keyLost_otherOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ basket, payment url.Values }{
		"other amount":              {url.Values{"mug": {"1"}}, url.Values{"amount": {"900"}}},
		"other items, equal amount": {url.Values{"tea": {"2"}, "mug": {"2"}}, url.Values{"amount": {"4300"}}},
		"other email":               {url.Values{"kettle": {"1"}}, url.Values{"amount": {"4300"}, "email": {"eve@example.com"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			b := f.browser()
			payment := form(visa)
			payment.Set("amount", "4300")
			path := b.send("/shop/basket", url.Values{"kettle": {"1"}}, "").path
			require.Equal(t, "paid", b.post(path, payment).State)
			f.exec(forget, client.NewKey())
			require.Equal(t, path, b.send("/shop/basket", test.basket, "").path)
			maps.Copy(payment, test.payment)
			require.Equal(t, "stopped", b.post(path, payment).State)
			require.Contains(t, b.get(path).text, "Please contact us")
			require.Len(t, f.Stripe.Charges(), 1)
		})
	}
}

// The API has lost the rows of a charge, and the shop never got the response. A retry of the stored request
// finds the charge, and after 22 hours the staff decide. An unknown key never counts as "not charged".
func TestRunOnce_rowsLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		age     time.Duration
		expired bool // by the operator, as the runbook describes
		state   string
	}{
		"soon":     {time.Hour, false, "paid"},
		"too late": {22 * time.Hour, false, "stopped"},
		"expired":  {0, true, "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, b, path := newPurchase(t)
			f.payLost(b, path)
			f.loseRows()
			if test.expired {
				key := idempotency.KeyID(f.Account, idempotency.Key(*f.row(path).IdempotencyKey))
				require.NoError(t, f.Engine.ExpireLost(t.Context(), f.Account, key, orders.CreateOperation, orders.Path, time.Now()))
			}
			f.setNetwork("", time.Minute)
			f.age(test.age)
			f.runOnce()
			require.Equal(t, test.state, b.resume(path).State)
			require.NotContains(t, b.get(path).text, "Nothing was charged")
			require.Equal(t, test.state == "stopped", strings.Contains(b.get(path).text, "do not pay again"))
			require.Len(t, f.Stripe.Charges(), 1)
		})
	}
}

// The shop misses that the card was declined until the key is reaped. The failed order says that nothing was
// charged, so the customer can pay again with a new key.
func TestPay_declineMissed(t *testing.T) {
	t.Parallel()
	f, b, path := newPurchase(t)
	f.setNetwork(lost, 2*time.Second)
	require.Equal(t, "paying", b.pay(path, declined).State)
	first := f.row(path).IdempotencyKey
	require.Equal(t, 1, idempotencytest.Reap(t, f.Pool))
	f.setNetwork("", time.Minute)
	f.age(80 * time.Hour)
	f.runOnce()
	require.Equal(t, "basket", f.row(path).State)
	require.NotEqual(t, first, f.row(path).IdempotencyKey)
	require.Contains(t, b.get(path).text, "Nothing was charged.")
	require.Equal(t, "paid", b.pay(path, visa).State)
	require.Len(t, f.Stripe.Charges(), 1)
}

// If an attempt is rejected while another one is in flight, that one can still finish the purchase.
func TestPay_refusedBesideInFlight(t *testing.T) {
	t.Parallel()
	for refusal, state := range map[string]string{wrongKey: "paying", moved: "paying", notFound: "stopped"} {
		t.Run(refusal, func(t *testing.T) {
			t.Parallel()
			f, b, path := newPurchase(t)
			held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
			tab := b.postAsync(path, form(visa))
			<-held.Reached()
			f.setNetwork(refusal, 100*time.Millisecond)
			require.Equal(t, state, b.resume(path).State)
			held.Release()
			require.NoError(t, <-tab)
			require.Equal(t, "paid", f.row(path).State)
			require.Len(t, f.Stripe.Charges(), 1)
		})
	}
}

// If the customer corrects the request in another tab after an attempt has read the purchase, the attempt
// does not send the former body with the key.
func TestPay_staleTab(t *testing.T) {
	t.Parallel()
	f, b, path := newPurchase(t)
	f.setNetwork(cut, 10*time.Millisecond)
	require.Equal(t, "paying", b.pay(path, visa).State)
	f.setNetwork("", time.Minute)

	corrected, err := f.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = corrected.Exec(t.Context(), "UPDATE shop.purchases SET request = convert_to(replace(convert_from(request, 'UTF8'), 'ada@', 'eve@'), 'UTF8')")
	require.NoError(t, err)
	tab := b.postAsync(path, url.Values{})
	for waits := false; !waits; { // until the attempt waits for the lock of the row
		require.NoError(t, f.Pool.QueryRow(t.Context(),
			"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits))
	}
	require.NoError(t, corrected.Commit(t.Context()))
	require.NoError(t, <-tab)
	require.Empty(t, f.Stripe.Requests())
	require.Equal(t, "paid", b.resume(path).State)
	require.Contains(t, b.get(path).text, "eve@example.com")
}

func TestShop_pages(t *testing.T) {
	t.Parallel()
	f, b, path := newPurchase(t)
	page := b.get(path)
	require.Contains(t, page.text, "$25.00")
	require.Contains(t, page.text, "pk_test_shop")
	require.NotContains(t, page.text, string(*f.row(path).IdempotencyKey))
	require.NotContains(t, page.text, "ok_", "the API key")
	require.Contains(t, page.header.Get("Content-Security-Policy"), "script-src 'self' https://js.stripe.com https://*.js.stripe.com ")
	require.Equal(t, "no-store", page.header.Get("Cache-Control"))

	for _, unknown := range []string{path, "/shop/purchases/x", "/shop/purchases/" + string(client.NewKey())} {
		require.Equal(t, http.StatusNotFound, f.browser().get(unknown).status) // of another customer
	}
	forged := b.send("/shop/basket", url.Values{"tea": {"1"}}, "https://evil.example")
	require.Equal(t, http.StatusForbidden, forged.status)
	empty := b.send("/shop/basket", url.Values{"tea": {"-1"}, "mug": {"many"}}, "")
	require.Equal(t, "/shop", empty.path)
	require.Contains(t, empty.text, "Your basket is empty.")

	require.Equal(t, "unknown", f.browser().resume(path).State, "the customer's cookie was deleted")
}
