package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestDatabase_down(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order, key := f.createPaid(t), newKey()
	f.Pool.Close()
	for _, got := range []response{
		f.create(t, key, orderBody()), f.create(t, key, orderBody(), prefer(respondAsync)), f.getKey(t, key),
		f.get(t, order), f.get(t, "/v1/orders"),
	} {
		require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
		require.Equal(t, "2", got.header.Get("Retry-After"))
		line := f.log.await(t, map[string]any{"request_id": got.header.Get("X-Request-Id")})
		require.Equal(t, "WARN", line["level"])
	}
	require.Equal(t, http.StatusOK, f.get(t, "/healthz").status)
}

func poolSize(size int32) func(*options) {
	return func(s *options) {
		s.pool = append(s.pool, func(config *pgxpool.Config) { config.MaxConns = size })
	}
}

func TestDatabase_noFreeConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1))
	conn, err := f.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()

	begin := time.Now()
	for _, waiting := range []<-chan asyncResponse{
		f.createAsync(t, newKey(), orderBody()),
		f.sendAsync(f.request(t, http.MethodGet, "/v1/orders", "")),
	} {
		got := receive(t, waiting)
		require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
	}
	require.Less(t, time.Since(begin), stepTimeout/2)
}
