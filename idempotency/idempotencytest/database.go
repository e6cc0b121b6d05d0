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

// NewPool returns a pool, fit for an engine, on a database of the test's own.
// The functions may change its configuration further before it opens.
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

// State is how [PutKey] leaves a key.
type State struct {
	// Point is the recovery point, Started when empty.
	Point idempotency.RecoveryPoint

	// Leased says that a run holds the key, since LeaseAge ago. A finished key
	// is held by nobody.
	Leased   bool
	LeaseAge time.Duration

	// Response is that of a finished key: 200 without a body by default.
	Response idempotency.Response
}

// PutKey makes the key of a request and leaves it in a state, as if runs of the
// operation had brought it there. It returns the key's id.
func PutKey(t testing.TB, pool *pgxpool.Pool, req idempotency.Request, operation string, state State) uuid.UUID {
	t.Helper()
	engine, err := idempotency.New(pool, idempotency.Config{
		LockTimeout: time.Minute,
		Clock:       time.Now,
		Logger:      slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	if state.Response.Status == 0 {
		state.Response.Status = 200
	}
	result, err := engine.Do(t.Context(), req, parked{operation: operation, state: state})
	if state.Point == idempotency.Finished {
		require.NoError(t, err)
		return result.KeyID
	}
	require.ErrorIs(t, err, errParked)

	point := state.Point
	if point == "" {
		point = idempotency.Started
	}
	_, err = pool.Exec(t.Context(), `
UPDATE idempotency_keys
   SET recovery_point = $3,
       locked_at      = CASE WHEN $4 THEN now() - $5::interval END,
       last_error     = NULL
 WHERE account_id = $1
   AND id = $2`, req.AccountID, result.KeyID, string(point), state.Leased, state.LeaseAge)
	require.NoError(t, err)
	return result.KeyID
}

// AgeLease makes a lease that somebody holds so much older.
func AgeLease(t testing.TB, pool *pgxpool.Pool, accountID, keyID uuid.UUID, age time.Duration) {
	t.Helper()
	tag, err := pool.Exec(t.Context(), `
UPDATE idempotency_keys
   SET locked_at = locked_at - $3::interval
 WHERE account_id = $1
   AND id = $2
   AND locked_at IS NOT NULL`, accountID, keyID, age)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected(), "nobody holds the key")
}

// AgeRun makes an unfinished key's last run so much older, for whoever looks for
// keys that were abandoned.
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

// errParked ends the run of a parked operation.
var errParked = errors.New("parked")

// parked is an operation that finishes at once, or stops behind its first step.
type parked struct {
	operation string
	state     State
}

func (p parked) Name() string { return p.operation }

func (p parked) Steps(*idempotency.Run) idempotency.Steps {
	const waiting idempotency.RecoveryPoint = "parked"
	return idempotency.Steps{
		idempotency.Started: {Record: func(context.Context, *idempotency.Tx) (idempotency.Outcome, error) {
			if p.state.Point == idempotency.Finished {
				return idempotency.Finish(p.state.Response), nil
			}
			return idempotency.Advance(waiting), nil
		}},
		waiting: {Call: func(context.Context) error { return errParked }},
	}
}
