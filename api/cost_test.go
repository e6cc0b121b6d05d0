package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
)

// What a request costs the database, on a connection that has seen its
// statements: one round trip for the look at the key, in which the API key is
// checked, one for the claim with the order, one for each of the other two
// transactions.
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

	cost(func() answer { return a.create(t, key, body()) }, http.StatusCreated)
	roundTrips, commits = cost(func() answer { return a.create(t, key, body()) }, http.StatusCreated)
	require.Equal(t, 1, roundTrips, "a replay")
	require.Equal(t, 0, commits)

	roundTrips, _ = cost(func() answer { return a.create(t, newKey(), "[]") }, http.StatusBadRequest)
	require.Equal(t, 1, roundTrips, "the credentials")
}
