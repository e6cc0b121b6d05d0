package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

func TestAnOrderIsChargedOnceAndReplayed(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := newKey()

	first := a.create(t, key, body())
	require.Equal(t, http.StatusCreated, first.status)
	require.Equal(t, "application/json", first.header.Get("Content-Type"))
	require.Equal(t, key, first.header.Get("Idempotency-Key"))
	require.Empty(t, first.header.Get("Idempotent-Replayed"))

	order := first.order(t)
	require.Equal(t, "/v1/orders/"+order.ID.String(), first.header.Get("Location"))
	require.Equal(t, orders.StatusPaid, order.Status)
	require.EqualValues(t, 4300, order.Amount)
	require.EqualValues(t, 0, order.AmountRefunded)
	require.Equal(t, email, order.Email)
	require.Equal(t, "Assam CANARY", order.Items[0].Description)
	require.Equal(t, map[string]string{"note": "CANARY"}, order.Metadata)
	require.Equal(t, a.stripe.Charges()[0].IntentID, *order.PaymentIntentID)
	require.WithinRange(t, *order.PaidAt, order.CreatedAt, time.Now().Add(time.Minute))
	require.Equal(t, string(first.body), string(a.get(t, first.header.Get("Location")).body), "as it was created")

	for range 2 {
		again := a.create(t, key, body())
		require.Equal(t, first.status, again.status)
		require.Equal(t, string(first.body), string(again.body))
		require.Equal(t, first.header.Get("Content-Type"), again.header.Get("Content-Type"))
		require.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
		require.NotEqual(t, first.header.Get("X-Request-Id"), again.header.Get("X-Request-Id"))
	}
	a.requireOnePaidOrder(t)
}

func TestADeclineIsStoredAndReplayed(t *testing.T) {
	t.Parallel()
	a := start(t)
	key, declined := newKey(), body(with("payment_method", "pm_card_visa_chargeDeclinedInsufficientFunds"))

	first := a.create(t, key, declined)
	require.Equal(t, http.StatusPaymentRequired, first.status)
	p := first.problem(t)
	require.Equal(t, "payment-declined", p.slug())
	require.Equal(t, "card_declined", p.Code)
	require.Equal(t, "insufficient_funds", p.DeclineCode)
	require.Empty(t, first.header.Get("Location"))

	again := a.create(t, key, declined)
	require.Equal(t, http.StatusPaymentRequired, again.status)
	require.Equal(t, string(first.body), string(again.body))
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, orders.StatusPaymentFailed, a.get(t, "/v1/orders/"+p.OrderID).order(t).Status)
	require.Empty(t, a.stripe.Charges())
}

func TestARefusalOfTheProviderIsStored(t *testing.T) {
	t.Parallel()
	a := start(t)
	key, refused := newKey(), body(with("payment_method", "pm_card_nobody"))

	first := a.create(t, key, refused)
	require.Equal(t, http.StatusUnprocessableEntity, first.status)
	require.Equal(t, "payment-refused", first.problem(t).slug())
	again := a.create(t, key, refused)
	require.Equal(t, string(first.body), string(again.body))
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
}

func TestTheSameRequestInOtherWordsIsReplayed(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := newKey()
	first := a.create(t, key, `{"email":"canary.ada@example.com","currency":"usd","payment_method":"pm_card_visa",
		"items":[{"sku":"TEA-CANARY","quantity":2,"unit_amount":1250}]}`)
	require.Equal(t, http.StatusCreated, first.status)

	again := a.create(t, key, `{ "items":[{"unit_amount":1.25e3,"quantity":2.0,"sku":"\u0054EA-CANARY"}],
		"payment_method":"pm_card_visa", "currency":"usd", "email":"canary.ada@example.com" }`,
		header("Content-Type", "Application/JSON; charset=UTF-8"))
	require.Equal(t, http.StatusCreated, again.status)
	require.Equal(t, string(first.body), string(again.body))
	require.Len(t, a.stripe.Charges(), 1)
}

func TestAKeyNamesOneRequest(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := newKey()
	require.Equal(t, http.StatusCreated, a.create(t, key, body()).status)

	other := a.create(t, key, body(with("currency", "eur")))
	require.Equal(t, http.StatusUnprocessableEntity, other.status)
	require.Equal(t, "idempotency-key-reused", other.problem(t).slug())
	require.Equal(t, key, other.header.Get("Idempotency-Key"))

	invalid := a.create(t, key, `{"currency":"usd"}`)
	require.Equal(t, "idempotency-key-reused", invalid.problem(t).slug(), "the key is looked at before the rules (R19)")
	a.requireOnePaidOrder(t)
}

func TestAKeyIsInProgressWhileItsRequestRuns(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
	first := a.createAsync(t, key, body())
	<-held.Reached()

	second := a.create(t, key, body())
	require.Equal(t, http.StatusConflict, second.status)
	require.Equal(t, "idempotency-key-in-progress", second.problem(t).slug())
	require.Equal(t, "1", second.header.Get("Retry-After"))
	require.Equal(t, key, second.header.Get("Idempotency-Key"))
	require.Equal(t, "idempotency-key-reused", a.create(t, key, body(with("currency", "eur"))).problem(t).slug())

	held.Release()
	done := <-first
	require.NoError(t, done.err)
	require.Equal(t, http.StatusCreated, done.status)
	require.Equal(t, string(done.body), string(a.create(t, key, body()).body))
	a.requireOnePaidOrder(t)
}

func TestAReapedKeyNeverExecutesAgain(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := newKey()
	order := a.create(t, key, body()).order(t)
	a.exec(t, "DELETE FROM idempotency_keys")

	again := a.create(t, key, body())
	require.Equal(t, http.StatusUnprocessableEntity, again.status)
	require.Equal(t, "idempotency-key-expired", again.problem(t).slug())
	require.Equal(t, order.ID.String(), again.problem(t).OrderID)
	require.Len(t, a.stripe.Charges(), 1)
	require.Equal(t, 0, a.rows(t)["idempotency_keys"])
}

func TestAKeyOfANewerVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := newKey()
	a.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Times: stripetest.Always})
	require.Equal(t, http.StatusServiceUnavailable, a.create(t, key, body()).status)
	a.exec(t, "UPDATE idempotency_keys SET recovery_point = 'of_tomorrow'")

	got := a.create(t, key, body())
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
	require.Equal(t, "2", got.header.Get("Retry-After"))
}

// The raw and the quoted form of RFC 9651 name the same key, and each request
// gets back what it sent.
func TestRawAndQuotedKeysAreOne(t *testing.T) {
	t.Parallel()
	unique := newKey()
	for name, forms := range map[string][2]string{
		"plain":                        {unique, `"` + unique + `"`},
		"with a quote and a backslash": {unique + `-a"b\c`, `"` + unique + `-a\"b\\c"`},
		"of backslashes only":          {strings.Repeat(`\`, 16), `"` + strings.Repeat(`\\`, 16) + `"`},
		"with every punctuation":       {"!#$%&'()*+,-./:;<=>?@[]^_`{|}~", `"!#$%&'()*+,-./:;<=>?@[]^_` + "`" + `{|}~"`},
		"of 16 characters":             {"0123456789abcdef", `"0123456789abcdef"`},
		"of 255 characters":            {strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := start(t)
			raw := a.create(t, forms[0], body())
			require.Equal(t, http.StatusCreated, raw.status)
			require.Equal(t, forms[0], raw.header.Get("Idempotency-Key"))

			quoted := a.create(t, forms[1], body())
			require.Equal(t, http.StatusCreated, quoted.status)
			require.Equal(t, forms[1], quoted.header.Get("Idempotency-Key"))
			require.Equal(t, "true", quoted.header.Get("Idempotent-Replayed"))
			require.Equal(t, string(raw.body), string(quoted.body))
			a.requireOnePaidOrder(t)
		})
	}
}

func TestAKeyBelongsToItsAccount(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := newKey()
	mine := a.create(t, key, body()).order(t)
	otherKey := a.otherAccount(t)

	theirs := a.create(t, key, body(), header("Authorization", "Bearer "+otherKey))
	require.Equal(t, http.StatusCreated, theirs.status)
	require.Empty(t, theirs.header.Get("Idempotent-Replayed"))
	require.NotEqual(t, mine.ID, theirs.order(t).ID)
	require.Len(t, a.stripe.Charges(), 2)
	require.Empty(t, a.stripe.OrdersChargedTwice())
}

// otherAccount makes a second account and returns its API key.
func (a *app) otherAccount(t *testing.T) string {
	t.Helper()
	_, key, err := accounts.Create(t.Context(), a.pool, "other")
	require.NoError(t, err)
	return key
}
