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

func TestCreateOrder_paid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()

	first := f.create(t, key, orderBody())
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
	require.Equal(t, f.stripe.Charges()[0].IntentID, *order.PaymentIntentID)
	require.WithinRange(t, order.PaidAt.Time, order.CreatedAt.Time, time.Now().Add(time.Minute))
	require.Equal(t, string(first.body), string(f.get(t, first.header.Get("Location")).body), "the order is unchanged")

	for range 2 {
		again := f.create(t, key, orderBody())
		require.Equal(t, first.status, again.status)
		require.Equal(t, string(first.body), string(again.body))
		require.Equal(t, first.header.Get("Content-Type"), again.header.Get("Content-Type"))
		require.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
		require.NotEqual(t, first.header.Get("X-Request-Id"), again.header.Get("X-Request-Id"))
	}
	f.requireOnePaidOrder(t)
}

func TestCreateOrder_declined(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, declined := newKey(), orderBody(withMember("payment_method", "pm_card_visa_chargeDeclinedInsufficientFunds"))

	first := f.create(t, key, declined)
	require.Equal(t, http.StatusPaymentRequired, first.status)
	p := first.problem(t)
	require.Equal(t, "payment-declined", p.slug())
	require.Equal(t, "card_declined", p.Code)
	require.Equal(t, "insufficient_funds", p.DeclineCode)
	require.Empty(t, first.header.Get("Location"))

	again := f.create(t, key, declined)
	require.Equal(t, http.StatusPaymentRequired, again.status)
	require.Equal(t, string(first.body), string(again.body))
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, orders.StatusPaymentFailed, f.get(t, "/v1/orders/"+p.OrderID).order(t).Status)
	require.Empty(t, f.stripe.Charges())
}

func TestCreateOrder_refused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, refused := newKey(), orderBody(withMember("payment_method", "pm_card_nobody"))

	first := f.create(t, key, refused)
	require.Equal(t, http.StatusUnprocessableEntity, first.status)
	require.Equal(t, "payment-refused", first.problem(t).slug())
	again := f.create(t, key, refused)
	require.Equal(t, string(first.body), string(again.body))
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
}

func TestCreateOrder_keyReused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	require.Equal(t, http.StatusCreated, f.create(t, key, orderBody()).status)

	other := f.create(t, key, orderBody(withMember("currency", "eur")))
	require.Equal(t, http.StatusUnprocessableEntity, other.status)
	require.Equal(t, "idempotency-key-reused", other.problem(t).slug())
	require.Equal(t, key, other.header.Get("Idempotency-Key"))

	invalid := f.create(t, key, `{"currency":"usd"}`)
	require.Equal(t, "idempotency-key-reused", invalid.problem(t).slug(), "the key is looked up before validation (R19)")
	f.requireOnePaidOrder(t)
}

func TestCreateOrder_keyInProgress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
	first := f.createAsync(t, key, orderBody())
	<-held.Reached()

	second := f.create(t, key, orderBody())
	require.Equal(t, http.StatusConflict, second.status)
	require.Equal(t, "idempotency-key-in-progress", second.problem(t).slug())
	require.Equal(t, "1", second.header.Get("Retry-After"))
	require.Equal(t, key, second.header.Get("Idempotency-Key"))
	require.Equal(t, "idempotency-key-reused", f.create(t, key, orderBody(withMember("currency", "eur"))).problem(t).slug())

	held.Release()
	done := <-first
	require.NoError(t, done.err)
	require.Equal(t, http.StatusCreated, done.status)
	require.Equal(t, string(done.body), string(f.create(t, key, orderBody()).body))
	f.requireOnePaidOrder(t)
}

func TestCreateOrder_newerVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Times: stripetest.Always})
	require.Equal(t, http.StatusServiceUnavailable, f.create(t, key, orderBody()).status)
	f.exec(t, "UPDATE idempotency_keys SET recovery_point = 'of_a_newer_version'")

	got := f.create(t, key, orderBody())
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
	require.Equal(t, "2", got.header.Get("Retry-After"))
}

// The raw and the quoted form of RFC 9651 name the same key. The response repeats the
// form of the request. [FuzzIdempotencyKeyHeader] compares all forms.
func TestCreateOrder_quotedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey() + `-a"b\c`
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
	first := f.create(t, key, orderBody())
	require.Equal(t, http.StatusCreated, first.status)
	require.Equal(t, key, first.header.Get("Idempotency-Key"))

	again := f.create(t, quoted, orderBody())
	require.Equal(t, http.StatusCreated, again.status)
	require.Equal(t, quoted, again.header.Get("Idempotency-Key"))
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, string(first.body), string(again.body))
	f.requireOnePaidOrder(t)
}

// otherAccount creates another account and returns its API key.
func (f *fixture) otherAccount(t *testing.T) string {
	t.Helper()
	_, key, err := accounts.Create(t.Context(), f.pool, "other")
	require.NoError(t, err)
	return key
}
