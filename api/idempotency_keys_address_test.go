package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// Location survives a proxy that decodes the path, as nginx with a URI in proxy_pass and Apache do.
func TestLocation_decodingProxy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, key := range []string{
		"order/2026/the-first", "order%2F2026-the-first", "100%-of-the-orders", "../../../etc/passwd", "order//of/two/slashes",
		"order?of=a-question", "order#of-a-fragment", "~order-with-a-tilde", "a-plain-key-of-this-test",
		strings.Repeat("/a", 127) + "/", "%%%%%%%%%%%%%%%%",
	} {
		accepted := f.create(t, key, orderBody(), prefer("respond-async"))
		require.Equal(t, http.StatusAccepted, accepted.status, key)
		location := accepted.header.Get("Location")
		decoded, err := url.PathUnescape(location)
		require.NoError(t, err)
		require.Equal(t, location, decoded, "nothing to escape")
		require.False(t, strings.Contains(strings.TrimPrefix(location, "/v1/idempotency-keys/"), "/"), location)
		require.EqualValues(t, key, f.get(t, location).keyStatus(t).Key)
		require.EqualValues(t, key, f.get(t, keyPath(key)).keyStatus(t).Key, "the key itself")
	}
}

// A proxy may have changed the address of a used key, so it is not known that nothing was done.
func TestGetKey_malformedAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for path, outcome := range map[string]string{
		"/v1/idempotency-keys/order/2026/the-first": "unknown", // a decoded slash
		"/v1/idempotency-keys/order":                "unknown", // cut at a decoded question mark
		"/v1/idempotency-keys/~b3JkZXI":             "unknown", // a key is longer
		"/v1/idempotency-keys/":                     "unknown",
		keyPath("an-unused-key-of-this-test"):       "none",
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
