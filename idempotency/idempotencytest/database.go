package idempotencytest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

// NewPool returns a pool for an engine on a database of its own.
func NewPool(t testing.TB, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return dbtest.New(t, append([]func(*pgxpool.Config){postgres.Configure}, configure...)...)
}

// Account inserts an account and returns its id.
func Account(t testing.TB, pool *pgxpool.Pool) uuid.UUID {
	t.Helper()
	id := uuid.New()
	_, err := pool.Exec(t.Context(), "INSERT INTO accounts (id, name) VALUES ($1, 'test')", id)
	require.NoError(t, err)
	return id
}

// PutKey inserts the key of a request at a recovery point, which no run holds.
func PutKey(t testing.TB, pool *pgxpool.Pool, req idempotency.Request, operation string, point idempotency.RecoveryPoint) uuid.UUID {
	t.Helper()
	result, err := newEngine(t, pool).Do(t.Context(), req, stopping{operation, point})
	if point != idempotency.Finished {
		require.ErrorIs(t, err, errStopped)
		return result.KeyID
	}
	require.NoError(t, err)
	return result.KeyID
}

// Reap makes all finished keys a year old, deletes them, and returns their number.
func Reap(t testing.TB, pool *pgxpool.Pool) int {
	t.Helper()
	const retention = 360 * 24 * time.Hour
	_, err := pool.Exec(t.Context(), "UPDATE idempotency_keys SET finished_at = finished_at - $1::interval", retention)
	require.NoError(t, err)
	deleted, err := newEngine(t, pool).Reap(t.Context(), retention, 100)
	require.NoError(t, err)
	return deleted
}

func newEngine(t testing.TB, pool *pgxpool.Pool) *idempotency.Engine {
	t.Helper()
	engine, err := idempotency.New(pool, idempotency.Config{LeaseDuration: time.Minute, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return engine
}

var errStopped = errors.New("stopped")

// stopping is an operation that stops at a recovery point.
type stopping struct {
	name  string
	point idempotency.RecoveryPoint
}

func (o stopping) Name() string { return o.name }

func (o stopping) Steps(*idempotency.Run) idempotency.Steps {
	start := func(context.Context, *idempotency.Tx) (idempotency.Transition, error) {
		if o.point == idempotency.Finished {
			return idempotency.Finish(idempotency.Response{Status: 200}), nil
		}
		return idempotency.Advance(o.point), nil
	}
	stop := func(context.Context) (idempotency.RecordFunc, error) { return nil, errStopped }
	return idempotency.Steps{Start: start, At: map[idempotency.RecoveryPoint]idempotency.StepFunc{o.point: stop}}
}
