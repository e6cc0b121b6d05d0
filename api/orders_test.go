package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

func TestCreateOrder_paid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey() + `-a"b\c`

	first := f.create(t, key, orderBody())
	require.Equal(t, http.StatusCreated, first.status)
	require.Equal(t, "application/json", first.header.Get("Content-Type"))
	require.Equal(t, key, first.header.Get("Idempotency-Key"))
	require.Empty(t, first.header.Get("Idempotent-Replayed"))

	order := first.order(t)
	require.Equal(t, "/v1/orders/"+order.ID.String(), first.header.Get("Location"))
	require.Equal(t, orders.StatusPaid, order.Status)
	require.EqualValues(t, 4300, order.Amount)
	require.Equal(t, email, *order.Email)
	require.Equal(t, "Assam CANARY", order.Items[0].Description)
	require.Equal(t, map[string]string{"note": "CANARY"}, order.Metadata)
	require.Equal(t, f.Stripe.Charges()[0].IntentID, *order.PaymentIntentID)
	require.WithinRange(t, order.PaidAt.Time, order.CreatedAt.Time, time.Now().Add(time.Minute))
	f.requireReplays(t, key, orderBody(), first)

	// The raw and the quoted form name the same key. [FuzzIdempotencyKeyHeader] has all forms.
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
	again := f.create(t, quoted, orderBody())
	require.Equal(t, quoted, again.header.Get("Idempotency-Key"))
	require.Equal(t, string(first.body), string(again.body))
	f.requireOnePaidOrder(t)
}

func TestCreateOrder_failed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for card, want := range map[string]struct {
		status int
		slug   string
		client.Failure
	}{
		"pm_card_visa_chargeDeclinedInsufficientFunds": {http.StatusPaymentRequired, "payment-declined", client.Failure{Code: "card_declined", DeclineCode: "insufficient_funds"}},
		stripetest.DeclineLimitCard:                    {http.StatusPaymentRequired, "payment-declined", client.Failure{Code: "card_decline_rate_limit_exceeded"}},
		"pm_card_nobody":                               {http.StatusUnprocessableEntity, "payment-refused", client.Failure{Code: "resource_missing"}},
	} {
		key, body := newKey(), orderBody(withMember("payment_method", card))
		first := f.create(t, key, body)
		require.Equal(t, want.status, first.status)
		p := first.problem(t)
		require.Equal(t, []string{want.slug, want.Code, string(want.DeclineCode)}, []string{p.slug(), p.Code, p.DeclineCode})
		require.Empty(t, first.header.Get("Location"))
		f.requireReplays(t, key, body, first)
		order := f.get(t, "/v1/orders/"+p.OrderID)
		require.Equal(t, orders.StatusPaymentFailed, order.order(t).Status)
		require.Equal(t, &want.Failure, decode[client.Order](t, order).Failure)
		require.Contains(t, string(f.get(t, "/v1/orders").body), string(order.body))
	}
	require.Empty(t, f.Stripe.Charges())
}

func TestCreateOrder_keyUsed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := newKey()
	held, first := f.createHeld(t, key, orderBody())

	second := f.create(t, key, orderBody())
	require.Equal(t, http.StatusConflict, second.status)
	require.Equal(t, []any{"idempotency-key-in-progress", client.OutcomeUnknown}, []any{second.problem(t).slug(), second.problem(t).Outcome})
	require.Equal(t, "1", second.header.Get("Retry-After"))
	require.Equal(t, key, second.header.Get("Idempotency-Key"))
	reused := f.create(t, key, orderBody(withMember("currency", "eur"))).problem(t)
	require.Equal(t, []any{"idempotency-key-reused", client.OutcomeUnknown}, []any{reused.slug(), reused.Outcome})

	held.Release()
	done := receive(t, first)
	require.Equal(t, http.StatusCreated, done.status)
	require.Equal(t, string(done.body), string(f.create(t, key, orderBody()).body))
	for _, other := range []string{orderBody(withMember("currency", "eur")), `{"currency":"usd"}`} { // looked up before validation (R19)
		reused := f.create(t, key, other).problem(t)
		require.Equal(t, []any{"idempotency-key-reused", client.OutcomeFinal}, []any{reused.slug(), reused.Outcome})
	}
	f.requireOnePaidOrder(t)
}

func (f *fixture) otherAccount(t *testing.T) string {
	t.Helper()
	_, key, err := accounts.Create(t.Context(), f.Pool, "other")
	require.NoError(t, err)
	return key
}

func TestCreate_reference(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	basket := withMember("reference", "basket #17")
	order := f.createPaid(t, basket)
	require.Equal(t, "basket #17", *f.get(t, order).order(t).Reference)

	// The customer's second tab has a key of its own.
	exists := f.create(t, newKey(), orderBody(basket)).problem(t)
	require.Equal(t, http.StatusUnprocessableEntity, exists.Status)
	require.Equal(t, "order-exists", exists.slug())
	require.EqualValues(t, "never", exists.Retry)
	require.EqualValues(t, "none", exists.Outcome)
	require.Equal(t, order, "/v1/orders/"+exists.OrderID)

	f.createPaid(t)
	found := f.get(t, "/v1/orders?reference=basket%20%2317")
	require.JSONEq(t, `{"data":[`+string(f.get(t, order).body)+`],"has_more":false}`, string(found.body))

	invalid := f.create(t, newKey(), orderBody(withMember("reference", "Körbchen"))).problem(t)
	require.Equal(t, "validation-failed", invalid.slug())
	require.Equal(t, "/reference", invalid.Errors[0].Pointer)
	unreadable := f.get(t, "/v1/orders?reference=").problem(t)
	require.Equal(t, "/reference", unreadable.Errors[0].Pointer)
}
