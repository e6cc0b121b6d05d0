package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

func TestTx_readsAndWrites(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.request()
	_, err := f.do(req, beforeRecord(&threeSteps{}, reserved, func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
		effect(tx, run, "queued")
		var n int
		err := tx.QueryRow(ctx, insertEffect+" RETURNING 1", []any{run.AccountID, string(run.Key), "executed"}, &n)
		require.NoError(t, err)

		err = tx.QueryRow(ctx, "SELECT count(*) FROM effects WHERE idempotency_key = $1", []any{string(run.Key)}, &n)
		require.NoError(t, err)
		require.Equal(t, 2, n, "created and executed; the queued statement has not been sent")

		err = tx.QueryRow(ctx, "SELECT 1 WHERE false", nil, &n)
		require.ErrorIs(t, err, pgx.ErrNoRows)
		return nil
	}))
	require.NoError(t, err)
	require.Equal(t, map[string]int{"created": 1, "reserved": 1, "paid": 1, "executed": 1, "queued": 1}, f.effects(req))
	f.requireIdle()
}

func TestTx_callbacks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, point := range []idempotency.RecoveryPoint{idempotency.Started, reserved} {
		req := f.request()
		var returned uuid.UUID
		op := beforeRecord(&threeSteps{}, point, func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			tx.Queue(insertEffect+" RETURNING account_id", run.AccountID, string(run.Key), "returned").
				QueryRow(func(row pgx.Row) error { return errors.Join(row.Scan(&returned), errNoResponse) })
			return nil
		})
		_, err := f.do(req, op)
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.Equal(t, f.account, returned)
		f.mustDo(req, op)
		require.Equal(t, map[string]int{"created": 1, "reserved": 1, "paid": 1, "returned": 1}, f.effects(req))
	}
	f.requireIdle()
}

func TestTx_statementFails(t *testing.T) {
	t.Parallel()
	const violation = "INSERT INTO accounts (id, name) VALUES (gen_random_uuid(), '')"
	type record = func(context.Context, *idempotency.Tx, *idempotency.Run) error
	queued := func(statement string, arguments ...any) record {
		return func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			tx.Queue(statement, arguments...)
			effect(tx, run, "after the failure")
			return nil
		}
	}
	tests := []struct {
		name        string
		record      record
		want        string
		unavailable bool // the next request repeats the step
	}{
		{"queued", queued(violation), "(SQLSTATE 23514)", false},
		{"queued, argument of a wrong type", queued("SELECT $1::uuid", struct{}{}), "unable to encode struct {}{}", false},
		{"queued, argument of a wrong value", queued("SELECT $1::uuid", "no uuid"), "(SQLSTATE 22P02)", false},
		{"queued, conflicts with another transaction", queued("DO $$ BEGIN RAISE deadlock_detected; END $$"), "(SQLSTATE 40P01)", true},
		{"queued, detected by COMMIT", func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			tx.Queue("CREATE TEMPORARY TABLE twice (x int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			tx.Queue("DO $$ BEGIN INSERT INTO twice VALUES (1), (1); END $$")
			return nil
		}, "(SQLSTATE 23505)", false},
		{"queried", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			return tx.QueryRow(ctx, violation+" RETURNING id", nil, new(uuid.UUID))
		}, "(SQLSTATE 23514)", false},
		{"queried, error ignored", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			_ = tx.QueryRow(ctx, "TABLE unknown", nil)
			_ = tx.QueryRow(ctx, "SELECT 1", nil)
			return nil
		}, "(SQLSTATE 42P01)", false},
		{"scanned into a wrong type", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			return tx.QueryRow(ctx, "SELECT 'text'", nil, new(int))
		}, "cannot scan", false},
	}
	f := newFixture(t)
	for _, test := range tests {
		for _, point := range []idempotency.RecoveryPoint{idempotency.Started, reserved} {
			t.Run(test.name+", "+string(point), func(t *testing.T) {
				req := f.request()
				_, err := f.do(req, beforeRecord(&threeSteps{}, point, func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
					effect(tx, run, "rolled back")
					return test.record(ctx, tx, run)
				}))
				require.ErrorContains(t, err, test.want)
				require.Equal(t, test.unavailable, errors.Is(err, postgres.ErrUnavailable))
				require.NotErrorIs(t, err, idempotency.ErrInProgress)
				if point == idempotency.Started {
					require.Empty(t, f.row(req))
					require.Empty(t, f.effects(req))
				} else {
					require.Equal(t, map[string]int{"created": 1}, f.effects(req))
					require.Equal(t, keyState{Point: string(reserved), Runs: 1, LastError: new(err.Error())}, f.state(req))
				}
				f.requireIdle()

				f.mustDo(req, &threeSteps{})
				require.Equal(t, onceEach, f.effects(req))
			})
		}
	}
}

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

func readFirst(op idempotency.Operation) idempotency.Operation {
	for _, point := range []idempotency.RecoveryPoint{idempotency.Started, reserved, paid} {
		op = beforeRecord(op, point, query)
	}
	return op
}

// A COMMIT without an acknowledgement ends the run, unless its response is stored. A commit that no standby has
// confirmed is not reported as committed. The next request finds what was committed, and records each effect
// once (R22).
func TestCommit_lost(t *testing.T) {
	t.Parallel()
	wire := &idempotencytest.Wire{}
	f := newFixture(t, wire.Configure)
	for name, test := range map[string]struct {
		commit  int
		fault   idempotencytest.Fault
		left    string // recovery point
		calls   int64  // of both requests
		answers bool
	}{
		"claim, not executed":     {1, idempotencytest.CutBefore, "", 2, false},
		"claim, executed":         {1, idempotencytest.CutAfter, "reserved", 2, false},
		"step, not executed":      {2, idempotencytest.CutBefore, "reserved", 3, false},
		"step, executed":          {2, idempotencytest.CutAfter, "paid", 2, false},
		"last step, not executed": {3, idempotencytest.CutBefore, "paid", 3, false},
		"last step, executed":     {3, idempotencytest.CutAfter, "finished", 2, true},

		"claim, not replicated":     {1, idempotencytest.NotReplicated, "reserved", 2, false},
		"step, not replicated":      {2, idempotencytest.NotReplicated, "paid", 2, false},
		"last step, not replicated": {3, idempotencytest.NotReplicated, "finished", 2, false},
	} {
		for _, reads := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reads first: %t", name, reads), func(t *testing.T) {
				req, steps := f.request(), &threeSteps{}
				op := idempotency.Operation(steps)
				if reads {
					op = readFirst(steps)
				}
				wire.Strike(test.commit, test.fault)
				first, err := f.do(req, op)
				require.True(t, wire.Struck())
				require.Equal(t, test.answers, err == nil)
				if test.left == "" {
					require.Empty(t, f.row(req))
				} else {
					require.Equal(t, test.left, f.state(req).Point)
					require.False(t, f.state(req).Leased)
				}
				if !test.answers {
					require.ErrorIs(t, err, postgres.ErrUnavailable)
					require.Equal(t, test.fault == idempotencytest.NotReplicated, strings.Contains(err.Error(), "not replicated"))
					require.Zero(t, first.Response)
					first = f.mustDo(req, op)
				}
				require.Equal(t, test.calls, steps.calls.Load())
				require.Equal(t, onceEach, f.effects(req))
				again := f.mustDo(req, op)
				require.True(t, again.Replayed)
				require.Equal(t, first.Response, again.Response)
			})
		}
	}
	f.requireIdle()
}

func TestCommit_earlierWarning(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req, op := f.request(), &threeSteps{}
	op.reserve = func(context.Context, *idempotency.Run) error {
		_, err := f.pool.Exec(t.Context(), `DO $$ BEGIN RAISE WARNING 'canceling wait for synchronous replication'; END $$`)
		return err
	}
	f.mustDo(req, op)
}

func TestCost_perRequest(t *testing.T) {
	t.Parallel()
	wire := &idempotencytest.Wire{}
	f := newFixture(t, wire.Configure)
	failing := &threeSteps{reserve: func(context.Context, *idempotency.Run) error { return errNoResponse }}
	for _, test := range []struct {
		name       string
		op         idempotency.Operation
		state      given
		roundTrips int
		commits    int
	}{
		{name: "new key, one step", op: oneStep(), roundTrips: 3, commits: 1},
		{name: "new key, three steps with two calls", op: &threeSteps{}, roundTrips: 4, commits: 3},
		{name: "new key, steps that read first", op: readFirst(&threeSteps{}), roundTrips: 10, commits: 3},
		{name: "new key, invalid", op: rejecting(oneStep()), roundTrips: 1},
		{name: "call without an outcome", op: failing, roundTrips: 3, commits: 1},
		{name: "replay", op: &threeSteps{}, state: finished, roundTrips: 1},
		{name: "in progress", op: &threeSteps{}, state: leased, roundTrips: 1},
		{name: "takeover, one step left", op: &threeSteps{}, state: released, roundTrips: 3, commits: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 2 { // the first time prepares the statements
				req := f.request()
				if test.state.Point != "" {
					f.put(req, test.op, test.state)
				}
				wire.Reset()
				_, _ = f.do(req, test.op)
			}
			require.Equal(t, test.roundTrips, wire.RoundTrips(), "round trips")
			require.Equal(t, test.commits, wire.Commits(), "commits")
		})
	}
}
