package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

// After a connection that breaks before COMMIT was sent, the request is repeated, and each effect is recorded once.
func TestDatabase_connectionLost(t *testing.T) {
	t.Parallel()
	endOwnSession := func(ctx context.Context, tx *idempotency.Tx, _ *fixture) error {
		return tx.QueryRow(ctx, "SELECT pg_terminate_backend(pg_backend_pid())", nil, new(bool))
	}
	// The server ends the session between two statements.
	idleTooLong := func(ctx context.Context, tx *idempotency.Tx, f *fixture) error {
		var pid int
		if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()", nil, &pid); err != nil {
			return err
		}
		require.Eventually(f.t, func() bool {
			var alive bool
			err := f.pool.QueryRow(f.t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid).Scan(&alive)
			return err == nil && !alive
		}, waitFor, tick)
		return nil
	}
	for _, point := range []idempotency.RecoveryPoint{idempotency.Started, paid} {
		for name, lose := range map[string]func(context.Context, *idempotency.Tx, *fixture) error{
			"ended by an operator": endOwnSession,
			"idle in transaction":  idleTooLong,
		} {
			t.Run(fmt.Sprintf("%s at %s", name, point), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, connections(2), sessionSetting("idle_in_transaction_session_timeout", "50"))
				attempts := 0
				op := &threeSteps{before: func(ctx context.Context, tx *idempotency.Tx, at idempotency.RecoveryPoint) error {
					if at != point {
						return nil
					}
					if attempts++; attempts > 1 {
						return nil
					}
					return lose(ctx, tx, f)
				}}
				req := f.request()
				_, err := f.do(req, op)
				require.ErrorIs(t, err, postgres.ErrUnavailable)
				f.mustDo(req, op)
				require.Equal(t, 2, attempts)
				require.Equal(t, onceEach, f.effects(req))
			})
		}
	}
}

// Connections that the server has closed are replaced.
func TestDatabase_restarted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := pgx.Connect(t.Context(), dbtest.URL(f.pool))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	drop := func(context.Context) error {
		_, err := conn.Exec(t.Context(), `
SELECT pg_terminate_backend(pid, 5000)
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid()`)
		return err
	}
	require.NoError(t, drop(t.Context()))
	f.requireDoneWithin(3, &threeSteps{reserve: once(drop), pay: once(drop)})
}

// once returns a call that has its effect the first time.
func once(call func(context.Context) error) func(context.Context) error {
	done := false
	return func(ctx context.Context) error {
		if done {
			return nil
		}
		done = true
		return call(ctx)
	}
}

// requireDoneWithin repeats a request as a client does, after at most this many 503.
func (f *fixture) requireDoneWithin(failures int, op *threeSteps) {
	f.t.Helper()
	req := f.request()
	_, err := f.do(req, op)
	for ; err != nil && failures > 0; failures-- {
		require.ErrorIs(f.t, err, postgres.ErrUnavailable)
		_, err = f.do(req, op)
	}
	require.NoError(f.t, err)
	require.Equal(f.t, onceEach, f.effects(req))
}

// A read-only session is on a demoted primary. The next one connects to the new primary.
func TestDatabase_readOnlySession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	demote := func(context.Context) error {
		_, err := f.pool.Exec(t.Context(), "SET default_transaction_read_only = on")
		return err
	}
	require.NoError(t, demote(t.Context()))
	f.requireDoneWithin(3, &threeSteps{reserve: once(demote), pay: once(demote)})
}
