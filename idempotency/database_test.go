package idempotency_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

// other opens a session of somebody else, in a transaction that is rolled back
// by the returned function.
func (b *bench) other(statement string, arguments ...any) (rollback func()) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), dbtest.URL(b.pool))
	require.NoError(b.t, err)
	tx, err := conn.Begin(b.t.Context())
	require.NoError(b.t, err)
	_, err = tx.Exec(b.t.Context(), statement, arguments...)
	require.NoError(b.t, err)
	return func() {
		ctx := context.WithoutCancel(b.t.Context())
		require.NoError(b.t, tx.Rollback(ctx)) // which the server has heard when the test goes on
		require.NoError(b.t, conn.Close(ctx))
	}
}

// Whoever waits for a row for longer than lock_timeout is told to come back
// (R21).
func TestDatabase_rowLocked(t *testing.T) {
	t.Parallel()
	const lock = "SELECT FROM idempotency_keys WHERE idempotency_key = $1 FOR UPDATE"
	locked := func(t *testing.T) *bench { return newBench(t, sessionSetting("lock_timeout", "50")) }

	t.Run("at takeover", func(t *testing.T) {
		t.Parallel()
		b := locked(t)
		req, op := b.request(), &threeSteps{}
		b.put(req, op, idempotencytest.State{Point: paid})
		before := b.row(req)
		rollback := b.other(lock, string(req.Key))
		_, err := b.do(req, op)
		rollback()
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		require.Zero(t, op.calls.Load())
		require.Equal(t, before, b.row(req))
		_, err = b.do(req, op)
		require.NoError(t, err)
	})
	t.Run("at a commit", func(t *testing.T) {
		t.Parallel()
		b := locked(t)
		req, op := b.request(), &threeSteps{}
		var rollback func()
		op.pay = func(context.Context, *idempotency.Run) error {
			rollback = b.other(lock, string(req.Key))
			return nil
		}
		_, err := b.do(req, op)
		rollback()
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		require.Equal(t, map[string]int{"created": 1, "reserved": 1}, b.effects(req))
	})
	t.Run("by a claim that is not committed yet", func(t *testing.T) {
		t.Parallel()
		b := locked(t)
		req := b.request()
		rollback := b.other(`
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, params_hash,
    recovery_point, lease_token, attempt, last_run_at, created_at
) VALUES ($1, $2, $3, 'one_step', 'POST', '/', '', decode(repeat('01', 33), 'hex'), 'started', $1, 1, now(), now())`,
			idempotency.KeyID(b.account, req.Key), b.account, string(req.Key))
		_, err := b.do(req, oneStep())
		rollback()
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		require.Empty(t, b.row(req))
	})
	t.Run("of the operation's own table", func(t *testing.T) {
		t.Parallel()
		b := locked(t)
		const lock = "SELECT FROM accounts WHERE id = $1 FOR UPDATE"
		for name, record := range map[string]func(ctx context.Context, tx *idempotency.Tx) error{
			"queued": func(_ context.Context, tx *idempotency.Tx) error {
				tx.Queue(lock, b.account)
				return nil
			},
			"executed": func(ctx context.Context, tx *idempotency.Tx) error {
				_, err := tx.Exec(ctx, lock, b.account)
				return err
			},
			"asked": func(ctx context.Context, tx *idempotency.Tx) error {
				return tx.QueryRow(ctx, lock, b.account).Scan()
			},
		} {
			req := b.request()
			var rollback func()
			_, err := b.do(req, operation{name: "step", steps: func(run *idempotency.Run) idempotency.Steps {
				steps := step(func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) (idempotency.Outcome, error) {
					rollback = b.other(lock, b.account)
					return idempotency.Finish(answer(run)), record(ctx, tx)
				}).Steps(run)
				return steps
			}})
			rollback()
			require.ErrorIs(t, err, postgres.ErrLockTimeout, name)
			require.NotErrorIs(t, err, idempotency.ErrInProgress, "no other run holds the key")
		}
		b.requireIdle()
	})
}

func TestDatabase_statementTimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t, sessionSetting("statement_timeout", "50"))
	for name, record := range map[string]func(ctx context.Context, tx *idempotency.Tx) error{
		"queued": func(_ context.Context, tx *idempotency.Tx) error {
			tx.Queue("SELECT pg_sleep(60)")
			return nil
		},
		"asked": func(ctx context.Context, tx *idempotency.Tx) error {
			var nothing string
			return tx.QueryRow(ctx, "SELECT pg_sleep(60)").Scan(&nothing)
		},
	} {
		req := b.request()
		_, err := b.do(req, step(func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error) {
			return idempotency.Finish(answer(run)), record(ctx, tx)
		}))
		require.ErrorIs(t, err, postgres.ErrUnavailable, name)
		require.Equal(t, string(reserved), b.state(req).Point)
		require.False(t, b.state(req).Leased)
	}
	b.requireIdle()
}

// once makes a statement that raises an error the first n times.
func (b *bench) failing(n int, state string) string {
	b.t.Helper()
	name := fmt.Sprintf("failures_%s_%d", state, n)
	_, err := b.pool.Exec(b.t.Context(), "CREATE SEQUENCE "+name)
	require.NoError(b.t, err)
	return fmt.Sprintf("DO $$ BEGIN IF nextval('%s') <= %d THEN RAISE SQLSTATE '%s'; END IF; END $$", name, n, state)
}

// What met others is tried again (40001, 40P01), within bounds, and without
// another call.
func TestDatabase_conflicts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, state := range []string{"40001", "40P01"} {
		for times, want := range map[int]error{1: nil, 2: nil, 3: postgres.ErrUnavailable} {
			for _, point := range []idempotency.RecoveryPoint{idempotency.Started, reserved} {
				t.Run(fmt.Sprintf("%s %d times at %s", state, times, point), func(t *testing.T) {
					statement := b.failing(times, state)
					defer func() {
						_, err := b.pool.Exec(t.Context(), fmt.Sprintf("DROP SEQUENCE failures_%s_%d", state, times))
						require.NoError(t, err)
					}()
					req, calls := b.request(), &threeSteps{}
					op := operation{name: "three_steps", steps: func(run *idempotency.Run) idempotency.Steps {
						steps := calls.Steps(run)
						step := steps[point]
						record := step.Record
						step.Record = func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
							tx.Queue(statement)
							return record(ctx, tx)
						}
						steps[point] = step
						return steps
					}}
					_, err := b.do(req, op)
					if want != nil {
						require.ErrorIs(t, err, want)
						_, err = b.do(req, op)
					}
					require.NoError(t, err)
					require.Equal(t, onceEach, b.effects(req))
				})
			}
		}
	}
	b.requireIdle()
}

// A connection that breaks before COMMIT was sent costs neither the request nor
// another call.
func TestDatabase_connectionLost(t *testing.T) {
	t.Parallel()
	endOwnSession := func(ctx context.Context, tx *idempotency.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	}
	// The session is ended from outside, between two statements.
	idleTooLong := func(b *bench) func(ctx context.Context, tx *idempotency.Tx) error {
		return func(ctx context.Context, tx *idempotency.Tx) error {
			var pid int
			if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				return err
			}
			conn, err := pgx.Connect(b.t.Context(), dbtest.URL(b.pool))
			require.NoError(b.t, err)
			defer func() { require.NoError(b.t, conn.Close(b.t.Context())) }()
			require.Eventually(b.t, func() bool {
				var alive bool
				err := conn.QueryRow(b.t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid).Scan(&alive)
				return err == nil && !alive
			}, patience, tick)
			return nil
		}
	}
	for _, point := range []idempotency.RecoveryPoint{idempotency.Started, paid} {
		for name, lose := range map[string]func(*bench) func(context.Context, *idempotency.Tx) error{
			"ended by an operator": func(*bench) func(context.Context, *idempotency.Tx) error { return endOwnSession },
			"idle in transaction":  idleTooLong,
		} {
			t.Run(fmt.Sprintf("%s at %s", name, point), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, sessionSetting("idle_in_transaction_session_timeout", "50"))
				calls := &threeSteps{}
				tries := 0
				op := operation{name: "three_steps", steps: func(run *idempotency.Run) idempotency.Steps {
					steps := calls.Steps(run)
					step := steps[point]
					record := step.Record
					step.Record = func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
						tries++
						if tries == 1 {
							if err := lose(b)(ctx, tx); err != nil {
								return idempotency.Outcome{}, err
							}
						}
						return record(ctx, tx)
					}
					steps[point] = step
					return steps
				}}
				req := b.request()
				_, err := b.do(req, op)
				require.NoError(t, err)
				require.Equal(t, 2, tries)
				require.EqualValues(t, 2, calls.calls.Load())
				require.Equal(t, onceEach, b.effects(req))
				b.requireIdle()
			})
		}
	}
}

// Idle connections that the server has dropped are no reason to fail.
func TestDatabase_restarted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NoError(t, b.pool.Ping(t.Context()))
	conn, err := pgx.Connect(t.Context(), dbtest.URL(b.pool))
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
	req, op := b.request(), &threeSteps{reserve: drop, pay: drop}
	_, err = b.do(req, op)
	require.NoError(t, err)
	require.EqualValues(t, 2, op.calls.Load())
	require.Equal(t, onceEach, b.effects(req))
}

// A session on a primary that was demoted refuses to write. It is dropped, and
// the next one finds the new primary.
func TestDatabase_readOnlySession(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	demote := func(context.Context, *idempotency.Run) error {
		_, err := b.pool.Exec(t.Context(), "SET default_transaction_read_only = on")
		return err
	}
	require.NoError(t, demote(t.Context(), nil))
	req, op := b.request(), &threeSteps{reserve: demote, pay: demote}
	_, err := b.do(req, op)
	require.NoError(t, err)
	require.Equal(t, onceEach, b.effects(req))
}

func TestDatabase_poolExhausted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn, err := b.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = b.do(b.request(), oneStep())
	require.ErrorIs(t, err, postgres.ErrUnavailable)
}

func TestDatabase_poolClosed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pool.Close()
	_, err := b.do(b.request(), oneStep())
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	_, err = b.resume(b.request(), oneStep())
	require.ErrorIs(t, err, postgres.ErrUnavailable)
}

// A takeover whose answer gets lost does not keep the key until the lease ends.
func TestDatabase_takeoverUnheard(t *testing.T) {
	t.Parallel()
	var cut atomic.Bool
	b := newBench(t, func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // statements go by their text
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &deafConn{Conn: conn, to: "attempt + 1", once: &cut}, err
		}
	})
	req, op := b.request(), &threeSteps{}
	b.put(req, op, idempotencytest.State{Point: paid})
	_, err := b.do(req, op)
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	require.True(t, cut.Load())
	state := b.state(req)
	require.Equal(t, 2, state.Attempt, "the server did it")
	require.False(t, state.Leased)

	result, err := b.do(req, op)
	require.NoError(t, err)
	require.Equal(t, 3, result.Attempt)
	require.EqualValues(t, 1, op.calls.Load())
}

// deafConn breaks, once, when the answer to a statement with a certain text has
// come.
type deafConn struct {
	net.Conn
	to   string
	once *atomic.Bool
	deaf bool
}

func (c *deafConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.to)) && c.once.CompareAndSwap(false, true) {
		c.deaf = true
	}
	return c.Conn.Write(b)
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf && err == nil {
		return 0, io.EOF
	}
	return n, err
}

// A pooler in between may need another way of sending statements.
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
			b := newBench(t, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode })
			req, op := b.request(), &readingSteps{}
			op.pay = func(context.Context, *idempotency.Run) error { return errNoAnswer }
			_, err := b.do(req, op)
			require.ErrorIs(t, err, errNoAnswer)
			op.pay = nil
			first, err := b.resume(req, op)
			require.NoError(t, err)
			again, err := b.do(req, op)
			require.NoError(t, err)
			require.Equal(t, first.Response, again.Response)
			require.Equal(t, onceEach, b.effects(req))

			lost := b.request()
			_, err = b.do(lost, &threeSteps{reserve: func(context.Context, *idempotency.Run) error {
				_, err := b.pool.Exec(t.Context(), "UPDATE idempotency_keys SET lease_token = gen_random_uuid()")
				return err
			}})
			require.ErrorIs(t, err, idempotency.ErrInProgress)
			require.Equal(t, map[string]int{"created": 1}, b.effects(lost))
		})
	}
}
