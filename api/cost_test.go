package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
)

func TestCost_request(t *testing.T) {
	t.Parallel()
	wire := &idempotencytest.Wire{}
	f := newFixture(t, poolSize(1), func(s *options) { s.pool = append(s.pool, wire.Configure) })
	key := newKey()
	cost := func(send func() response, status int) (roundTrips, commits int) {
		wire.Reset()
		require.Equal(t, status, send().status)
		return wire.RoundTrips(), wire.Commits()
	}
	order := func() response { return f.create(t, newKey(), orderBody()) }
	cost(order, http.StatusCreated)

	roundTrips, commits := cost(order, http.StatusCreated)
	require.Equal(t, 4, roundTrips)
	require.Equal(t, 3, commits)

	f.expireAPIKeys()
	roundTrips, commits = cost(order, http.StatusCreated)
	require.Equal(t, 5, roundTrips, "with the lookup of the API key")
	require.Equal(t, 3, commits)

	cost(func() response { return f.create(t, key, orderBody()) }, http.StatusCreated)
	roundTrips, commits = cost(func() response { return f.create(t, key, orderBody()) }, http.StatusCreated)
	require.Equal(t, 1, roundTrips, "a replay")
	require.Equal(t, 0, commits)

	roundTrips, _ = cost(func() response { return f.create(t, newKey(), "[]") }, http.StatusBadRequest)
	require.Equal(t, 0, roundTrips, "rejected before the lookup of the key")

	malformed := func() response { return f.create(t, newKey(), orderBody(), header("Authorization", "Bearer nonsense")) }
	roundTrips, _ = cost(malformed, http.StatusUnauthorized)
	require.Equal(t, 0, roundTrips, "a malformed API key")
}
