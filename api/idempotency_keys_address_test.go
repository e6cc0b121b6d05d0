package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// An unknown key proves nothing: a proxy may have changed the address of a used key, its row may be lost, or
// its request may be on its way.
func TestGetKey_unknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for path, outcome := range map[string]string{
		"/v1/idempotency-keys/order/2026/the-first": "unknown", // a decoded slash
		"/v1/idempotency-keys/order":                "unknown", // cut at a decoded question mark
		"/v1/idempotency-keys/~b3JkZXI":             "unknown", // a key is longer
		"/v1/idempotency-keys/":                     "unknown",
		keyPath("an-unused-key-of-this-test"):       "unknown",
		"/v1/orders/order/2026":                     "none",
	} {
		p := f.get(t, path).problem(t)
		require.Equal(t, []string{"not-found", outcome}, []string{p.slug(), string(p.Outcome)}, path)
	}
}

// The records of the key are lost, so no response names an order.
func TestKey_expiredAsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const key = "the-key-of-lost-rows"
	require.NoError(t, f.Engine.ExpireLost(t.Context(), f.Account, idempotency.KeyID(f.Account, key), orders.CreateOperation, orders.Path, time.Now()))
	got := f.create(t, key, orderBody())
	require.Equal(t, http.StatusUnprocessableEntity, got.status)
	p := got.problem(t)
	require.Equal(t, []string{"idempotency-key-expired", "never", "final"}, []string{p.slug(), string(p.Retry), string(p.Outcome)})
	require.NotContains(t, string(got.body), "order_id")
	status := f.get(t, keyPath(key)).keyStatus(t)
	require.Equal(t, "expired", status.State)
	require.Nil(t, status.Order)
	require.Empty(t, f.Stripe.Charges())
}
