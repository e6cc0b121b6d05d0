package api_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func (f *fixture) requestsOfAll(t *testing.T, key, order, refund string) []response {
	t.Helper()
	return []response{
		f.create(t, key, orderBody()),
		f.createRefund(t, order, newKey(), `{}`),
		f.get(t, order),
		f.get(t, "/v1/orders"),
		f.get(t, refund),
		f.get(t, order+"/refunds"),
	}
}

func TestDatabase_tableMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order, key := f.createPaid(t), newKey()
	refund := f.createRefund(t, order, newKey(), `{"amount":1}`).header.Get("Location")
	f.exec(t, "ALTER TABLE orders RENAME TO gone; ALTER TABLE refunds RENAME TO gone_too")
	responses := f.requestsOfAll(t, key, order, refund)
	f.exec(t, "ALTER TABLE gone RENAME TO orders; ALTER TABLE gone_too RENAME TO refunds")
	require.Equal(t, http.StatusCreated, f.create(t, key, orderBody()).status)
	f.exec(t, "ALTER TABLE idempotency_keys RENAME TO gone")
	for _, got := range append(responses, f.getKey(t, key)) {
		require.Equal(t, http.StatusInternalServerError, got.status)
		require.NotContains(t, string(got.body), "relation")
		line := f.log.await(t, map[string]any{"request_id": got.header.Get("X-Request-Id")})
		require.Equal(t, "ERROR", line["level"])
		require.Contains(t, line["error"], "42P01")
	}
}

type databaseOutage struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (o *databaseOutage) configure(config *pgxpool.Config) {
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.down {
			return nil, errors.New("the database is gone")
		}
		conn, err := dial(ctx, network, address)
		if err == nil {
			o.conns = append(o.conns, conn)
		}
		return conn, err
	}
}

func (o *databaseOutage) setDown(down bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = down
	for _, conn := range o.conns {
		_ = conn.Close()
	}
	o.conns = nil
}

func TestDatabase_down(t *testing.T) {
	t.Parallel()
	database := &databaseOutage{}
	f := newFixture(t, func(s *options) { s.pool = append(s.pool, database.configure) })
	order, key := f.createPaid(t), newKey()
	refund := f.createRefund(t, order, newKey(), `{"amount":1}`).header.Get("Location")
	database.setDown(true)
	responses := f.requestsOfAll(t, key, order, refund)
	for _, got := range append(responses, f.create(t, key, orderBody(), prefer(respondAsync)), f.getKey(t, key), f.get(t, "/readyz")) {
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
		require.Equal(t, "2", got.header.Get("Retry-After"))
		line := f.log.await(t, map[string]any{"request_id": got.header.Get("X-Request-Id")})
		require.Equal(t, "WARN", line["level"])
	}
	require.Equal(t, http.StatusOK, f.get(t, "/healthz").status)

	database.setDown(false)
	f.awaitReadyz(t, http.StatusOK)
	require.Equal(t, http.StatusCreated, f.create(t, key, orderBody()).status)
}

func poolSize(size int32) func(*options) {
	return func(s *options) {
		s.pool = append(s.pool, func(config *pgxpool.Config) { config.MaxConns = size })
	}
}

// Without a free connection the response is 503, before any provider timeout.
func TestDatabase_noFreeConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, poolSize(1))
	conn, err := f.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()

	begin := time.Now()
	for _, waiting := range []<-chan asyncResponse{
		f.createAsync(t, newKey(), orderBody()),
		f.sendAsync(f.request(t, http.MethodGet, "/v1/orders", "")),
		f.sendAsync(f.request(t, http.MethodGet, "/readyz", "")),
	} {
		got := receive(t, waiting)
		require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
	}
	require.Less(t, time.Since(begin), stepTimeout/2)
}
