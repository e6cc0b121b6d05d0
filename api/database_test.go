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

	"example.com/orders-api/payments/stripetest"
)

// A migration, say, that holds a table for longer than a request waits. No key is
// in progress, so nobody is told so.
func TestAReadMeetsALock(t *testing.T) {
	t.Parallel()
	a := start(t, func(s *settings) {
		s.pool = append(s.pool, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["lock_timeout"] = "20" })
	})
	order := a.create(t, newKey(), body()).header.Get("Location")
	for table, read := range map[string]func() answer{
		"orders": func() answer { return a.get(t, order) },
		"api_keys": func() answer {
			a.expireAPIKeys()
			return a.create(t, newKey(), body())
		},
	} {
		tx, err := a.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "LOCK TABLE "+table)
		require.NoError(t, err)
		got := read()
		require.Equal(t, "temporarily-unavailable", got.problem(t).slug(), table)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

// A table that is gone is an error of ours. Its text stays in the log.
func TestABrokenDatabaseIsAnInternalError(t *testing.T) {
	t.Parallel()
	a := start(t)
	order := a.create(t, newKey(), body()).header.Get("Location")
	a.exec(t, "ALTER TABLE orders RENAME TO gone")
	key := newKey()
	for _, got := range []answer{
		a.create(t, key, body()),
		a.get(t, order),
		a.get(t, "/v1/orders"),
	} {
		require.Equal(t, http.StatusInternalServerError, got.status)
		require.NotContains(t, string(got.body), "relation")
		line := a.log.await(t, map[string]any{"request_id": got.header.Get("X-Request-Id")})
		require.Equal(t, "ERROR", line["level"])
		require.Contains(t, line["error"], "42P01")
	}
	a.exec(t, "ALTER TABLE gone RENAME TO orders")
	require.Equal(t, http.StatusCreated, a.create(t, key, body()).status)

	a.exec(t, "ALTER TABLE idempotency_keys RENAME TO gone")
	got := a.status(t, key)
	require.Equal(t, http.StatusInternalServerError, got.status)
	require.NotContains(t, string(got.body), "relation")
}

// outage is a switch in front of the database.
type outage struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (o *outage) configure(config *pgxpool.Config) {
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

func (o *outage) set(down bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = down
	for _, conn := range o.conns {
		_ = conn.Close()
	}
	o.conns = nil
}

func TestTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	database := &outage{}
	a := start(t, func(s *settings) { s.pool = append(s.pool, database.configure) })
	order := a.create(t, newKey(), body()).header.Get("Location")
	key := newKey()

	database.set(true)
	for _, got := range []answer{
		a.create(t, key, body()),
		a.create(t, key, body(), prefer(async)),
		a.get(t, order),
		a.get(t, "/v1/orders"),
		a.status(t, key),
		a.get(t, "/readyz"),
	} {
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
		require.Equal(t, "2", got.header.Get("Retry-After"))
		line := a.log.await(t, map[string]any{"request_id": got.header.Get("X-Request-Id")})
		require.Equal(t, "WARN", line["level"])
	}
	require.Equal(t, http.StatusOK, a.get(t, "/healthz").status)

	database.set(false)
	a.awaitReadyz(t, http.StatusOK)
	require.Equal(t, http.StatusCreated, a.create(t, key, body()).status)
}

// The database goes while the money moves. The order is found paid afterwards.
func TestTheDatabaseGoesWhileTheCardIsCharged(t *testing.T) {
	t.Parallel()
	database := &outage{}
	a := start(t, func(s *settings) { s.pool = append(s.pool, database.configure) })
	key := newKey()
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: confirmEndpoint})
	first := a.createAsync(t, key, body())
	<-held.Reached()
	database.set(true)
	held.Release()
	got := <-first
	require.NoError(t, got.err)
	require.Equal(t, "temporarily-unavailable", got.problem(t).slug())

	database.set(false)
	require.Equal(t, http.StatusConflict, a.create(t, key, body()).status, "the lease could not be given back")
	a.exec(t, "UPDATE idempotency_keys SET locked_at = locked_at - interval '1 hour'")
	require.Equal(t, http.StatusCreated, a.create(t, key, body()).status)
	a.requireOnePaidOrder(t)
}

func poolOf(size int32) func(*settings) {
	return func(s *settings) {
		s.pool = append(s.pool, func(config *pgxpool.Config) { config.MaxConns = size })
	}
}

// No request needs two connections at once, or one while it waits for the
// provider.
func TestOneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	a := start(t, poolOf(1))
	held := a.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint, Times: 8})
	keys, running := make([]string, 8), make([]<-chan outcome, 8)
	for i := range running {
		keys[i] = newKey()
		running[i] = a.createAsync(t, keys[i], body())
	}
	<-held.Reached()
	require.Equal(t, http.StatusOK, a.get(t, "/v1/orders").status, "while eight cards are charged")
	require.Equal(t, http.StatusOK, a.get(t, "/readyz").status)
	held.Release()
	for i, done := range running {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, http.StatusCreated, got.status)
		require.Equal(t, string(got.body), string(a.create(t, keys[i], body()).body))
		require.Equal(t, "idempotency-key-reused", a.create(t, keys[i], body(with("currency", "eur"))).problem(t).slug())
	}
	require.Len(t, a.stripe.Charges(), 8)
}

// Without a connection to spare the answer is "later", and soon.
func TestTheLastConnectionIsTaken(t *testing.T) {
	t.Parallel()
	a := start(t, poolOf(1))
	conn, err := a.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()

	begin := time.Now()
	for _, waiting := range []<-chan outcome{
		a.createAsync(t, newKey(), body()),
		a.sendAsync(a.request(t, http.MethodGet, "/v1/orders", "")),
		a.sendAsync(a.request(t, http.MethodGet, "/readyz", "")),
	} {
		got := <-waiting
		require.NoError(t, got.err)
		require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
	}
	require.Less(t, time.Since(begin), stepTimeout/2)
}
