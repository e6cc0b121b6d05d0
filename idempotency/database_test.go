package idempotency_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

func (f *fixture) otherTransaction(statement string, arguments ...any) (rollback func()) {
	f.t.Helper()
	conn, err := pgx.Connect(f.t.Context(), dbtest.URL(f.pool))
	require.NoError(f.t, err)
	tx, err := conn.Begin(f.t.Context())
	require.NoError(f.t, err)
	_, err = tx.Exec(f.t.Context(), statement, arguments...)
	require.NoError(f.t, err)
	return func() {
		ctx := context.WithoutCancel(f.t.Context())
		require.NoError(f.t, tx.Rollback(ctx)) // returns when the server has rolled back
		require.NoError(f.t, conn.Close(ctx))
	}
}

// A wait for the row of a key ends with ErrInProgress after lock_timeout.
func TestDatabase_rowLocked(t *testing.T) {
	t.Parallel()
	const lock = "SELECT FROM idempotency_keys WHERE idempotency_key = $1 FOR UPDATE"
	f := newFixture(t, sessionSetting("lock_timeout", "50"))
	t.Run("at takeover", func(t *testing.T) {
		req, op := f.request(), &threeSteps{}
		f.put(req, op, released)
		before := f.row(req)
		rollback := f.otherTransaction(lock, string(req.Key))
		_, err := f.do(req, op)
		rollback()
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		require.Zero(t, op.calls.Load())
		require.Equal(t, before, f.row(req))
	})
	t.Run("at a commit", func(t *testing.T) {
		req := f.request()
		var rollback func()
		_, err := f.do(req, &threeSteps{pay: func(context.Context, *idempotency.Run) error {
			rollback = f.otherTransaction(lock, string(req.Key))
			return nil
		}})
		rollback()
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		require.Equal(t, map[string]int{"created": 1, "reserved": 1}, f.effects(req))
	})
	t.Run("by a claim that is not committed", func(t *testing.T) {
		req := f.request()
		rollback := f.otherTransaction(insertOtherRequest, keyID(req), req.AccountID, string(req.Key))
		_, err := f.do(req, oneStep())
		rollback()
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		require.Empty(t, f.row(req))
	})
	f.requireIdle()
}

func TestDatabase_timeouts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sessionSetting("lock_timeout", "50"))
	for statement, want := range map[string]error{
		"SELECT 1 FROM accounts FOR UPDATE": postgres.ErrLockTimeout,
		"SELECT pg_sleep(60)":               postgres.ErrUnavailable,
	} {
		for how, execute := range map[string]func(ctx context.Context, tx *idempotency.Tx) error{
			"queued":  func(_ context.Context, tx *idempotency.Tx) error { tx.Queue(statement); return nil },
			"queried": func(ctx context.Context, tx *idempotency.Tx) error { return tx.QueryRow(ctx, statement, nil, new(any)) },
		} {
			req := f.request()
			var unlock func()
			_, err := f.do(req, beforeRecord(&threeSteps{}, reserved, func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
				unlock = f.otherTransaction("SELECT 1 FROM accounts FOR UPDATE")
				tx.Queue("SET LOCAL statement_timeout = 200") // of this transaction, because others may be slow
				return execute(ctx, tx)
			}))
			unlock()
			require.ErrorIs(t, err, want, how)
			require.NotErrorIs(t, err, idempotency.ErrInProgress, how)
			require.Equal(t, string(reserved), f.state(req).Point)
			require.False(t, f.state(req).Leased)
		}
	}
	f.requireIdle()
}

// A step whose transaction conflicts with another one is repeated by the next request.
func TestDatabase_conflicts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, point := range []idempotency.RecoveryPoint{idempotency.Started, reserved} {
		req := f.request()
		_, err := f.do(req, beforeRecord(&threeSteps{}, point, func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			tx.Queue("DO $$ BEGIN RAISE deadlock_detected; END $$")
			return nil
		}))
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		f.mustDo(req, &threeSteps{})
		require.Equal(t, onceEach, f.effects(req))
	}
	f.requireIdle()
}
