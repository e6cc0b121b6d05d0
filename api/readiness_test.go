package api_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
)

// A process that stops ends its connections with the responses: Shutdown closes idle ones, and a
// proxy may have sent a request on such a connection.
func TestReadiness_drain(t *testing.T) {
	t.Parallel()
	down := errors.New("the database is down")
	ready := api.NewReadiness(func() error { return down })
	require.Equal(t, down, ready.Check())
	down = nil
	require.NoError(t, ready.Check())

	f := newFixture(t, func(s *options) { s.ready = ready })
	require.False(t, f.get(t, "/readyz").closes)
	require.False(t, f.create(t, "a-key-before-drain", orderBody()).closes)
	ready.Drain()
	require.EqualError(t, ready.Check(), "shutting down")
	require.Equal(t, http.StatusServiceUnavailable, f.get(t, "/readyz").status)
	for _, response := range []response{f.get(t, "/readyz"), f.get(t, "/healthz"), f.create(t, "a-key-after-drain", orderBody())} {
		require.True(t, response.closes)
	}
}
