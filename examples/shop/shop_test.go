package shop_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

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
	f := newFixture(t)
	b := f.browser()
	path := b.fill()
	created := f.row(path)
	require.NotEmpty(t, *created.IdempotencyKey)
	require.Nil(t, created.Request)
	require.Equal(t, path, b.fill(), "another tab has the same basket")
	b.get(path)
	require.Equal(t, created, f.row(path), "a page view changes nothing")

	f.network.mode.Store(cut)
	f.shop.Patience = 10 * time.Millisecond
	require.Equal(t, "paying", b.pay(path, visa).State)
	stored := f.row(path)
	require.Equal(t, created.IdempotencyKey, stored.IdempotencyKey)
	require.Contains(t, string(stored.Request), visa)
	require.Equal(t, 1, stored.Attempts)

	f.network.mode.Store("")
	f.shop.Patience = time.Minute
	require.Equal(t, "paid", b.pay(path, declined).State, "another card does not replace the stored one")
	paid := f.row(path)
	require.Nil(t, paid.IdempotencyKey)
	require.Equal(t, stored.Request, paid.Request)
	require.Len(t, f.Stripe.ChargesByOrder(*paid.OrderID), 1)

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
	f.network.mode.Store(lost)
	f.shop.Patience = 2 * time.Second
	require.Equal(f.T, "paying", b.pay(path, visa).State)
	require.Eventually(f.T, func() bool { return len(f.Stripe.Charges()) == 1 }, time.Minute, time.Millisecond)
}

// A lost response is no reason for a new key.
func TestPay_responseLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browser()
	path := b.fill()
	f.payLost(b, path)
	before := f.row(path)
	require.Contains(t, b.get("/shop").text, "is in progress")
	require.Equal(t, path, b.fill(), "no second basket")

	f.network.mode.Store("")
	f.shop.Patience = time.Minute
	f.runOnce()
	require.Equal(t, "paid", f.row(path).State)
	require.Equal(t, before.Request, f.row(path).Request)
	require.Len(t, f.Stripe.Charges(), 1)
	require.Contains(t, b.get(path).text, "succeeded")
	require.Contains(t, b.get(path).text, *f.row(path).OrderID)
}

func TestPay_declined(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browser()
	path := b.fill()
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

func TestPay_approval(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		approve bool
		state   string
		charges int
	}{
		"approved": {true, "paid", 1},
		"declined": {false, "basket", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			b := f.browser()
			path := b.fill()
			asked := b.pay(path, challenge)
			require.Equal(t, "paying", asked.State)
			intent, _, found := strings.Cut(asked.ClientSecret, "_secret_")
			require.True(t, found)
			require.Equal(t, asked, b.resume(path), "after a reload")
			f.runOnce()
			require.Equal(t, "paying", f.row(path).State, "the customer has not decided")

			require.NoError(t, f.Stripe.Authenticate(intent, test.approve))
			f.runOnce()
			require.Equal(t, test.state, f.row(path).State)
			require.Equal(t, test.state, b.resume(path).State)
			require.Len(t, f.Stripe.Charges(), test.charges)
		})
	}
}

// Two tabs with two cards make one request, and the card of the first one is charged.
func TestPay_twoTabs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browser()
	path := b.fill()
	var tabs errgroup.Group
	for _, card := range []string{visa, "pm_card_mastercard", visa, "pm_card_amex"} {
		tabs.Go(func() error {
			_, err := b.try(path+"/pay", form(card), "")
			return err
		})
	}
	require.NoError(t, tabs.Wait())
	require.Equal(t, "paid", b.resume(path).State)
	require.Len(t, f.Stripe.Charges(), 1)
	var keys int
	require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT count(*) FROM idempotency_keys").Scan(&keys))
	require.Equal(t, 1, keys)
}

// The customer is never charged another amount than the page showed.
func TestPay_basketChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browser()
	path := b.fill()
	b.send("/shop/basket", url.Values{"tea": {"1"}, "kettle": {"1"}}, "")
	got := b.pay(path, visa)
	require.Equal(t, "basket", got.State)
	require.Contains(t, got.Message, "has changed")
	require.Empty(t, f.Stripe.Requests())
}

// A correction keeps the key, but only if no earlier attempt can have used it.
func TestPay_corrected(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browser()
	path := b.fill()
	key := f.row(path).IdempotencyKey
	invalid := form(visa)
	invalid.Set("email", "x")
	got := b.post(path, invalid)
	require.Equal(t, "basket", got.State)
	require.Contains(t, got.Message, "Nothing was charged. Please correct email: ")
	require.Equal(t, key, f.row(path).IdempotencyKey)

	f.network.mode.Store(wrongKey)
	got = b.pay(path, visa)
	require.Equal(t, "basket", got.State)
	require.Contains(t, got.Message, "cannot take payments")

	f.payLost(b, path)
	f.network.mode.Store(wrongKey)
	f.shop.Patience = time.Minute
	require.Equal(t, "paying", b.resume(path).State, "the first attempt may have charged the card")
	f.network.mode.Store("")
	require.Equal(t, "paid", b.resume(path).State)
	require.Len(t, f.Stripe.Charges(), 1)
}

// A request that cannot succeed is left to the shop's staff.
func TestPay_never(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browser()
	first := b.fill()
	key := f.row(first).IdempotencyKey
	require.Equal(t, "paid", b.pay(first, visa).State)
	path := b.fill()
	f.exec("UPDATE shop.purchases SET idempotency_key = $1 WHERE state = 'basket'", key)
	require.Equal(t, "stopped", b.pay(path, visa).State)
	require.Contains(t, b.get(path).text, "do not pay again")
	require.NotEqual(t, path, b.fill())
	require.Len(t, f.Stripe.Charges(), 1)
}

// forget restores the table from a backup of the time before the payments.
const forget = "UPDATE shop.purchases SET state = 'basket', request = NULL, order_id = NULL, idempotency_key = $1"

// A shop that has lost its keys, such as after the restore of a backup, does not charge the
// purchase again: the reference names the first order.
func TestPay_keyLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ card, first string }{
		"paid":              {visa, "paid"},
		"the card declined": {declined, "basket"}, // the reference is free again
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			b := f.browser()
			path := b.fill()
			require.Equal(t, test.first, b.pay(path, test.card).State)
			order := f.row(path).OrderID
			f.exec(forget, client.NewKey())
			require.Equal(t, "paid", b.pay(path, visa).State)
			if test.first == "paid" {
				require.Equal(t, order, f.row(path).OrderID)
			}
			require.Len(t, f.Stripe.Charges(), 1)
		})
	}
}

// The payment of the first order still waits for the customer's approval, so the purchase waits for its end.
func TestPay_keyLost_notYetApproved(t *testing.T) {
	t.Parallel()
	for name, approve := range map[string]bool{"approved": true, "declined": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			b := f.browser()
			path := b.fill()
			intent, _, _ := strings.Cut(b.pay(path, challenge).ClientSecret, "_secret_")
			first := f.row(path)
			f.exec(forget, client.NewKey())
			require.Equal(t, "paying", b.pay(path, visa).State)
			require.Empty(t, f.Stripe.Charges())

			require.NoError(t, f.Stripe.Authenticate(intent, approve))
			_, err := f.shop.Orders.Do(t.Context(), client.Request{Key: *first.IdempotencyKey, Path: "/v1/orders", Body: first.Request})
			require.Equal(t, approve, err == nil, err) // in place of the completer
			require.Equal(t, "paid", b.resume(path).State)
			require.Len(t, f.Stripe.Charges(), 1)
			require.Equal(t, approve, f.Stripe.Charges()[0].IntentID == intent)
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
		age   time.Duration
		state string
	}{
		"soon":     {time.Hour, "paid"},
		"too late": {22 * time.Hour, "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			b := f.browser()
			path := b.fill()
			f.payLost(b, path)
			f.loseRows()
			f.network.mode.Store("")
			f.shop.Patience = time.Minute
			f.age(test.age)
			f.runOnce()
			require.Equal(t, test.state, b.resume(path).State)
			require.NotContains(t, b.get(path).text, "Nothing was charged")
			require.Len(t, f.Stripe.Charges(), 1)
		})
	}
}

// The shop misses that the card was declined until the key is reaped. The failed order says that nothing was
// charged, so the customer can pay again with a new key.
func TestPay_declineMissed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browser()
	path := b.fill()
	f.network.mode.Store(lost)
	f.shop.Patience = 2 * time.Second
	require.Equal(t, "paying", b.pay(path, declined).State)
	first := f.row(path).IdempotencyKey
	require.Equal(t, 1, idempotencytest.Reap(t, f.Pool))
	f.network.mode.Store("")
	f.shop.Patience = time.Minute
	f.age(80 * time.Hour)
	f.runOnce()
	require.Equal(t, "basket", f.row(path).State)
	require.NotEqual(t, first, f.row(path).IdempotencyKey)
	require.Contains(t, b.get(path).text, "Nothing was charged.")
	require.Equal(t, "paid", b.pay(path, visa).State)
	require.Len(t, f.Stripe.Charges(), 1)
}

// The operator has expired the key of a lost order, as the runbook describes.
func TestPay_keyExpired(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browser()
	path := b.fill()
	f.payLost(b, path)
	f.loseRows()
	key := idempotency.KeyID(f.Account, idempotency.Key(*f.row(path).IdempotencyKey))
	require.NoError(t, f.Engine.ExpireLost(t.Context(), f.Account, key, orders.CreateOperation, orders.Path, time.Now()))
	f.network.mode.Store("")
	f.shop.Patience = time.Minute
	require.Equal(t, "stopped", b.resume(path).State)
	require.Contains(t, b.get(path).text, "do not pay again")
	require.Len(t, f.Stripe.Charges(), 1)
}

// A request that never arrived does not charge a customer who has long given up. This holds for each way
// in which the purchase can continue.
func TestPay_late(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browser()
	path := b.fill()
	f.network.mode.Store(cut)
	f.shop.Patience = 10 * time.Millisecond
	require.Equal(t, "paying", b.pay(path, visa).State)
	f.age(23 * time.Hour)
	require.Equal(t, "paying", b.resume(path).State, "the API does not say whether it knows the key")
	f.network.mode.Store("")
	f.shop.Patience = time.Minute
	require.Equal(t, "stopped", b.resume(path).State)
	require.Empty(t, f.Stripe.Requests())
}

// If an attempt is rejected while another one is in flight, that one can still finish the purchase.
func TestPay_refusedBesideInFlight(t *testing.T) {
	t.Parallel()
	for refusal, state := range map[string]string{wrongKey: "paying", moved: "paying", notFound: "stopped"} {
		t.Run(refusal, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			b := f.browser()
			path := b.fill()
			held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
			var tab errgroup.Group
			tab.Go(func() error {
				_, err := b.try(path+"/pay", form(visa), "")
				return err
			})
			<-held.Reached()
			f.network.mode.Store(refusal)
			f.shop.Patience = 100 * time.Millisecond
			require.Equal(t, state, b.resume(path).State)
			held.Release()
			require.NoError(t, tab.Wait())
			require.Equal(t, "paid", f.row(path).State)
			require.Len(t, f.Stripe.Charges(), 1)
		})
	}
}

// If the customer corrects the request in another tab after an attempt has read the purchase, the attempt
// does not send the former body with the key.
func TestPay_staleTab(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browser()
	path := b.fill()
	f.network.mode.Store(cut)
	f.shop.Patience = 10 * time.Millisecond
	require.Equal(t, "paying", b.pay(path, visa).State)
	f.network.mode.Store("")
	f.shop.Patience = time.Minute

	corrected, err := f.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = corrected.Exec(t.Context(), "UPDATE shop.purchases SET request = convert_to(replace(convert_from(request, 'UTF8'), 'ada@', 'eve@'), 'UTF8')")
	require.NoError(t, err)
	var tab errgroup.Group
	tab.Go(func() error {
		_, err := b.try(path+"/pay", url.Values{}, "")
		return err
	})
	for waits := false; !waits; { // until the attempt waits for the lock of the row
		require.NoError(t, f.Pool.QueryRow(t.Context(),
			"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits))
	}
	require.NoError(t, corrected.Commit(t.Context()))
	require.NoError(t, tab.Wait())
	require.Empty(t, f.Stripe.Requests())
	require.Equal(t, "paid", b.resume(path).State)
	require.Contains(t, b.get(path).text, "eve@example.com")
}

func TestShop_pages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.browser()
	path := b.fill()
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
