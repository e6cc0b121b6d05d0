package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
)

// The round trips of a request, on connections that have prepared its statements:
// one for the lookup of the key, one for the claim with the order, one for each of
// the other two transactions, and one for an API key that is not in the cache.
func TestCostOfARequest(t *testing.T) {
	t.Parallel()
	meter := idempotencytest.NewMeter()
	a := start(t, poolOf(1), func(s *settings) { s.pool = append(s.pool, meter.Configure) })
	key := newKey()
	cost := func(send func() answer, status int) (roundTrips, commits int) {
		meter.Reset()
		require.Equal(t, status, send().status)
		return meter.RoundTrips(), meter.Commits()
	}
	order := func() answer { return a.create(t, newKey(), body()) }
	cost(order, http.StatusCreated) // prepares the statements

	roundTrips, commits := cost(order, http.StatusCreated)
	require.Equal(t, 4, roundTrips)
	require.Equal(t, 3, commits)

	a.expireAPIKeys()
	roundTrips, commits = cost(order, http.StatusCreated)
	require.Equal(t, 5, roundTrips, "with the lookup of the API key")
	require.Equal(t, 3, commits)

	cost(func() answer { return a.create(t, key, body()) }, http.StatusCreated)
	roundTrips, commits = cost(func() answer { return a.create(t, key, body()) }, http.StatusCreated)
	require.Equal(t, 1, roundTrips, "a replay")
	require.Equal(t, 0, commits)

	roundTrips, _ = cost(func() answer { return a.create(t, newKey(), "[]") }, http.StatusBadRequest)
	require.Equal(t, 0, roundTrips, "rejected before the lookup of the key")

	malformed := func() answer { return a.create(t, newKey(), body(), header("Authorization", "Bearer nonsense")) }
	roundTrips, _ = cost(malformed, http.StatusUnauthorized)
	require.Equal(t, 0, roundTrips, "a malformed API key")
}
