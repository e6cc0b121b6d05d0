package idempotencytest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

// NewPool returns a pool for an engine on a database of its own. The functions may
// change its configuration.
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

// Reap makes all finished keys a year old and deletes them with a reaper. It returns
// their number.
func Reap(t testing.TB, pool *pgxpool.Pool) int {
	t.Helper()
	const retention = 360 * 24 * time.Hour
	_, err := pool.Exec(t.Context(), "UPDATE idempotency_keys SET finished_at = finished_at - $1::interval", retention)
	require.NoError(t, err)
	reaper, err := idempotency.NewReaper(newEngine(t, pool), idempotency.ReaperConfig{Retention: retention, Batch: 100})
	require.NoError(t, err)
	deleted, err := reaper.RunOnce(t.Context())
	require.NoError(t, err)
	return deleted
}

func newEngine(t testing.TB, pool *pgxpool.Pool) *idempotency.Engine {
	t.Helper()
	engine, err := idempotency.New(pool, idempotency.Config{LockTimeout: time.Minute, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
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

// Plan is a statement that a connection has prepared, and its generic plan.
type Plan struct {
	Name, Statement string
	Parameters      int
	Custom, Generic int    // executions with a plan for their arguments, and with the generic one
	Text            string `db:"-"`
}

// Plans returns the plans of all statements that the pool's only connection has
// prepared.
func Plans(t testing.TB, pool *pgxpool.Pool) []Plan {
	t.Helper()
	require.EqualValues(t, 1, pool.Config().MaxConns)
	rows, err := pool.Query(t.Context(), `
SELECT name,
       statement,
       cardinality(parameter_types),
       custom_plans,
       generic_plans
  FROM pg_prepared_statements`)
	require.NoError(t, err)
	plans, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Plan])
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan")
	require.NoError(t, err)
	for i, p := range plans {
		nulls := strings.TrimSuffix(strings.Repeat("NULL, ", p.Parameters), ", ")
		rows, err := pool.Query(t.Context(), "EXPLAIN EXECUTE "+p.Name+strings.Replace("("+nulls+")", "()", "", 1), pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, p.Statement)
		plans[i].Text = strings.Join(lines, "\n")
	}
	return plans
}
