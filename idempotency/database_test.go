package idempotency_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
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

// A wait for the row of a key ends with ErrInProgress after lock_timeout (R21).
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

var executions = map[string]func(ctx context.Context, tx *idempotency.Tx, statement string) error{
	"queued": func(_ context.Context, tx *idempotency.Tx, statement string) error {
		tx.Queue(statement)
		return nil
	},
	"queried": func(ctx context.Context, tx *idempotency.Tx, statement string) error {
		return tx.QueryRow(ctx, statement, nil, new(any))
	},
}

// A lock on a row of another table does not mean that another run holds the key.
func TestDatabase_otherRowLocked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sessionSetting("lock_timeout", "50"))
	const lock = "SELECT 1 FROM accounts FOR UPDATE"
	for name, execute := range executions {
		var rollback func()
		_, err := f.do(f.request(), beforeRecord(&threeSteps{}, reserved, func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			rollback = f.otherTransaction(lock)
			return execute(ctx, tx, lock)
		}))
		rollback()
		require.ErrorIs(t, err, postgres.ErrLockTimeout, name)
		require.NotErrorIs(t, err, idempotency.ErrInProgress, name)
	}
	f.requireIdle()
}

func TestDatabase_statementTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sessionSetting("statement_timeout", "200"))
	for name, execute := range executions {
		req := f.request()
		_, err := f.do(req, beforeRecord(&threeSteps{}, reserved, func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			return execute(ctx, tx, "SELECT pg_sleep(60)")
		}))
		require.ErrorIs(t, err, postgres.ErrUnavailable, name)
		require.Equal(t, string(reserved), f.state(req).Point)
		require.False(t, f.state(req).Leased)
	}
	f.requireIdle()
}

// A transaction that conflicted with another one is repeated at most twice.
func TestDatabase_conflicts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, state := range []string{"40001", "40P01"} {
		for _, conflicts := range []int{2, 3} {
			for _, point := range []idempotency.RecoveryPoint{idempotency.Started, reserved} {
				t.Run(fmt.Sprintf("%s %d times at %s", state, conflicts, point), func(t *testing.T) {
					sequence := fmt.Sprintf("attempts_%s_%d_%s", state, conflicts, point)
					_, err := f.pool.Exec(t.Context(), "CREATE SEQUENCE "+sequence)
					require.NoError(t, err)
					req, steps := f.request(), &threeSteps{}
					op := beforeRecord(steps, point, func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
						tx.Queue(fmt.Sprintf("DO $$ BEGIN IF nextval('%s') <= %d THEN RAISE SQLSTATE '%s'; END IF; END $$", sequence, conflicts, state))
						return nil
					})
					_, err = f.do(req, op)
					if conflicts < 3 {
						require.EqualValues(t, 2, steps.calls.Load())
					} else {
						require.ErrorIs(t, err, postgres.ErrUnavailable)
						_, err = f.do(req, op)
					}
					require.NoError(t, err)
					require.Equal(t, onceEach, f.effects(req))
				})
			}
		}
	}
	f.requireIdle()
}

// A connection that breaks before COMMIT was sent fails no request and repeats no
// call.
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
				steps, attempts := &threeSteps{}, 0
				op := beforeRecord(steps, point, func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
					if attempts++; attempts > 1 {
						return nil
					}
					return lose(ctx, tx, f)
				})
				req := f.request()
				f.mustDo(req, op)
				require.Equal(t, 2, attempts)
				require.EqualValues(t, 2, steps.calls.Load())
				require.Equal(t, onceEach, f.effects(req))
				f.requireIdle()
			})
		}
	}
}

// Idle connections that the server has closed are replaced.
func TestDatabase_restarted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.NoError(t, f.pool.Ping(t.Context()))
	conn, err := pgx.Connect(t.Context(), dbtest.URL(f.pool))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	drop := func(context.Context, *idempotency.Run) error {
		_, err := conn.Exec(t.Context(), `
SELECT pg_terminate_backend(pid, 5000)
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid()`)
		return err
	}
	require.NoError(t, drop(t.Context(), nil))
	req, op := f.request(), &threeSteps{reserve: drop, pay: drop}
	f.mustDo(req, op)
	require.EqualValues(t, 2, op.calls.Load())
	require.Equal(t, onceEach, f.effects(req))
}

// A read-only session is on a demoted primary. The next one connects to the new
// primary.
func TestDatabase_readOnlySession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	demote := func(context.Context, *idempotency.Run) error {
		_, err := f.pool.Exec(t.Context(), "SET default_transaction_read_only = on")
		return err
	}
	require.NoError(t, demote(t.Context(), nil))
	req, op := f.request(), &threeSteps{reserve: demote, pay: demote}
	f.mustDo(req, op)
	require.Equal(t, onceEach, f.effects(req))
}

func TestDatabase_poolClosed(t *testing.T) {
	t.Parallel()
	f := newCompleterFixture(newFixture(t), oneStep())
	f.pool.Close()
	req, ctx := f.request(), t.Context()
	for name, call := range map[string]func() error{
		"Do":                func() error { _, err := f.do(req, oneStep()); return err },
		"Resume":            func() error { _, err := f.resume(req, oneStep()); return err },
		"Status":            func() error { _, err := f.engine.Status(ctx, req.AccountID, keyID(req)); return err },
		"Lookup":            func() error { _, _, err := f.engine.Lookup(ctx, req.AccountID, req.Key); return err },
		"Stuck":             func() error { _, err := f.engine.Stuck(ctx, grace, 1); return err },
		"Find":              func() error { _, err := f.engine.Find(ctx, uuid.Nil, "an-unused-client-key"); return err },
		"Requeue":           func() error { return f.engine.Requeue(ctx, req.AccountID, keyID(req), nil) },
		"ReadStats":         func() error { _, err := idempotency.ReadStats(ctx, f.pool); return err },
		"Completer.RunOnce": func() error { _, err := f.completer().RunOnce(ctx); return err },
		"Reaper.RunOnce":    func() error { _, err := f.reaper().RunOnce(ctx); return err },
		"Reaper.Count":      func() error { _, err := f.reaper().Count(ctx); return err },
	} {
		require.ErrorIs(t, call(), postgres.ErrUnavailable, name)
	}
}

// The key is released although the run does not know that it was leased.
func TestDatabase_takeoverResponseLost(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	f := newFixture(t, func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // sends the text of statements
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &lossyConn{Conn: conn, statement: "attempt + 1", lost: &lost}, err
		}
	})
	req, op := f.request(), &threeSteps{}
	f.put(req, op, released)
	_, err := f.do(req, op)
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	require.True(t, lost.Load())
	state := f.state(req)
	require.Equal(t, 2, state.Attempt, "the server has executed it")
	require.False(t, state.Leased)

	result := f.mustDo(req, op)
	require.Equal(t, 3, result.Attempt)
	require.EqualValues(t, 1, op.calls.Load())
}

// lossyConn breaks once, instead of returning the response to a statement.
type lossyConn struct {
	net.Conn
	statement string
	lost      *atomic.Bool
	broken    bool
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.statement)) && c.lost.CompareAndSwap(false, true) {
		c.broken = true
	}
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.broken && err == nil {
		return 0, io.EOF
	}
	return n, err
}

// Behind a connection pooler, statements may be sent in another way.
func TestDatabase_queryExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement,
		pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode })
			req, steps := f.request(), &threeSteps{}
			op := readFirst(steps)
			steps.pay = func(context.Context, *idempotency.Run) error { return errNoResponse }
			_, err := f.do(req, op)
			require.ErrorIs(t, err, errNoResponse)
			steps.pay = nil
			first, err := f.resume(req, op)
			require.NoError(t, err)
			again := f.mustDo(req, op)
			require.Equal(t, first.Response, again.Response)
			require.Equal(t, onceEach, f.effects(req))

			lost := f.request()
			_, err = f.do(lost, &threeSteps{reserve: func(context.Context, *idempotency.Run) error {
				f.update(lost, "lease_token = md5(lease_token::text)::uuid")
				return nil
			}})
			require.ErrorIs(t, err, idempotency.ErrInProgress)
			require.Equal(t, map[string]int{"created": 1}, f.effects(lost))

			if mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol {
				return // they cannot encode the arrays of the other statements, and the program rejects them
			}
			c := newCompleterFixture(f, op)
			abandoned := c.putAbandoned(op, released, 2*grace)
			require.Equal(t, []idempotency.Key{abandoned.Key}, c.stuck(10))
			require.Len(t, c.find(abandoned.AccountID, string(abandoned.Key)), 1)
			wakes, err := c.engine.PollWakes(t.Context(), abandoned.AccountID, keyID(abandoned), "turn")
			require.NoError(t, err)
			require.True(t, wakes)
			require.Equal(t, idempotency.CompleterResult{Completed: 1}, c.pass())
			c.insertFinished(3, retention+time.Hour)
			require.Equal(t, 3, c.reap())
			require.NoError(t, c.engine.Requeue(t.Context(), f.account, keyID(abandoned), c.operations))
			_, err = idempotency.ReadStats(t.Context(), f.pool)
			require.NoError(t, err)
		})
	}
}
