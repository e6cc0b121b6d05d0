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

// State is the state in which [PutKey] leaves a key.
type State struct {
	// Point is the recovery point, by default one that no operation has.
	Point idempotency.RecoveryPoint

	// Leased means that a run took the unfinished key LeaseAge ago and holds it.
	Leased   bool
	LeaseAge time.Duration

	// Response is that of a finished key, by default 200 without a body.
	Response idempotency.Response
}

// PutKey inserts the key of a request in a state and returns its id.
func PutKey(t testing.TB, pool *pgxpool.Pool, req idempotency.Request, operation string, state State) uuid.UUID {
	t.Helper()
	if state.Point == "" {
		state.Point = noopPoint
	}
	if state.Response.Status == 0 {
		state.Response.Status = 200
	}
	result, err := newEngine(t, pool).Do(t.Context(), req, noopOperation{name: operation, state: state})
	if state.Point == idempotency.Finished {
		require.NoError(t, err)
		return result.KeyID
	}
	require.ErrorIs(t, err, errStopped)

	var leaseAge *time.Duration // NULL makes the difference NULL
	if state.Leased {
		leaseAge = &state.LeaseAge
	}
	_, err = pool.Exec(t.Context(), `
UPDATE idempotency_keys
   SET recovery_point = $3,
       locked_at      = now() - $4::interval,
       last_error     = NULL
 WHERE account_id = $1
   AND id = $2`, req.AccountID, result.KeyID, string(state.Point), leaseAge)
	require.NoError(t, err)
	return result.KeyID
}

// AgeLease moves the start of a key's lease back.
func AgeLease(t testing.TB, pool *pgxpool.Pool, accountID, keyID uuid.UUID, age time.Duration) {
	t.Helper()
	tag, err := pool.Exec(t.Context(), `
UPDATE idempotency_keys
   SET locked_at = locked_at - $3::interval
 WHERE account_id = $1
   AND id = $2
   AND locked_at IS NOT NULL`, accountID, keyID, age)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected(), "the key is not leased")
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

// AgeRun moves the last run of an unfinished key back.
func AgeRun(t testing.TB, pool *pgxpool.Pool, accountID, keyID uuid.UUID, age time.Duration) {
	t.Helper()
	tag, err := pool.Exec(t.Context(), `
UPDATE idempotency_keys
   SET last_run_at = last_run_at - $3::interval
 WHERE account_id = $1
   AND id = $2
   AND recovery_point <> 'finished'`, accountID, keyID, age)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected(), "there is no such unfinished key")
}

const noopPoint idempotency.RecoveryPoint = "noop"

var errStopped = errors.New("stopped")

// AwaitLockWait waits until a session of the pool's database waits for a lock.
func AwaitLockWait(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waiting bool
		err := pool.QueryRow(t.Context(), `
SELECT EXISTS (
    SELECT
      FROM pg_stat_activity
     WHERE datname = current_database()
       AND wait_event_type = 'Lock'
)`).Scan(&waiting)
		return err == nil && waiting
	}, 10*time.Second, time.Millisecond)
}

func newEngine(t testing.TB, pool *pgxpool.Pool) *idempotency.Engine {
	t.Helper()
	engine, err := idempotency.New(pool, idempotency.Config{LockTimeout: time.Minute, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return engine
}

// noopOperation finishes in its first step, or stops after it.
type noopOperation struct {
	name  string
	state State
}

func (o noopOperation) Name() string { return o.name }

func (o noopOperation) Steps(*idempotency.Run) idempotency.Steps {
	return idempotency.Steps{
		Start: func(context.Context, *idempotency.Tx) (idempotency.Outcome, error) {
			if o.state.Point == idempotency.Finished {
				return idempotency.Finish(o.state.Response), nil
			}
			return idempotency.Advance(noopPoint), nil
		},
		From: map[idempotency.RecoveryPoint]idempotency.Step{
			noopPoint: func(context.Context) (idempotency.Record, error) { return nil, errStopped },
		},
	}
}
