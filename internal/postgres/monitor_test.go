package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

// A lost session of the monitor may be the end of a server, so the pool connects again. The pool
// of one connection is busy all the time.
func TestMonitor(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
	other := idempotencytest.NewPool(t)
	monitor := postgres.NewMonitor(pool, slog.New(slog.DiscardHandler))
	var resets atomic.Int64
	monitor.OnReset(func() { resets.Add(1) })
	require.EqualError(t, monitor.Err(), "the database was not checked yet")

	var session atomic.Uint32
	var failure atomic.Pointer[error]
	stop, err := monitor.Start(t.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		session.Store(conn.Conn().PgConn().PID())
		if failure := failure.Load(); failure != nil {
			return *failure
		}
		return nil
	})
	require.NoError(t, err)
	defer stop()
	require.NoError(t, monitor.Err())
	require.EqualValues(t, 1, resets.Load())

	busy, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	before := busy.Conn().PgConn().PID()
	first := session.Load()
	_, err = other.Exec(t.Context(), "SELECT pg_terminate_backend($1)", first)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return monitor.Err() != nil }, 10*time.Second, time.Millisecond,
		"nothing proves that the only session is on the current server")
	require.Eventually(t, func() bool { return resets.Load() == 2 }, 10*time.Second, time.Millisecond)
	busy.Release()
	require.Eventually(t, func() bool { return monitor.Err() == nil }, 10*time.Second, time.Millisecond)
	require.NotEqual(t, first, session.Load())

	busy, err = pool.Acquire(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before, busy.Conn().PgConn().PID())
	for _, want := range []error{errors.New("a migration is missing"), nil} {
		failure.Store(&want)
		require.Eventually(t, func() bool { return monitor.Err() == want }, 10*time.Second, time.Millisecond) //nolint:errorlint // identity
	}
	busy.Release()
	require.EqualValues(t, 2, resets.Load())
}
