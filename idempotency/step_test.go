package idempotency_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

// A call without an outcome keeps the recovery point and gives the lease back
// (R11).
func TestStep_callFails(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		want string // what the key remembers
	}{
		{"plain", errNoAnswer, errNoAnswer.Error()},
		{"NUL and bytes that are no text", errors.New("a\x00b\xff"), "ab?"},
		{"long", errors.New(strings.Repeat("é", 600)), strings.Repeat("é", 500)},
		{"empty", errors.New(""), ""},
	}
	b := newBench(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req, op := b.request(), &threeSteps{}
			op.pay = func(context.Context, *idempotency.Run) error { return test.err }
			result, err := b.do(req, op)
			require.Equal(t, test.err, err, "the step's error comes back as it is")
			require.Zero(t, result.Response)
			require.Equal(t, idempotency.Started, result.From)
			require.Equal(t, paid, result.To)
			require.Equal(t, keyState{Point: string(paid), Attempt: 1, LastError: &test.want}, b.state(req))

			op.pay = nil
			result, err = b.do(req, op)
			require.NoError(t, err)
			require.Equal(t, paid, result.From)
			require.Equal(t, onceEach, b.effects(req))
			require.EqualValues(t, 3, op.calls.Load())
			require.Equal(t, keyState{Point: "finished", Attempt: 2}, b.state(req))
		})
	}
	b.requireIdle()
}

func TestStep_recordFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	failing := func(point idempotency.RecoveryPoint) operation {
		return operation{name: "three_steps", steps: func(run *idempotency.Run) idempotency.Steps {
			steps := (&threeSteps{}).Steps(run)
			step := steps[point]
			step.Record = func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
				effect(tx, run, "must not be there")
				return idempotency.Advance(paid), errNoAnswer
			}
			steps[point] = step
			return steps
		}}
	}
	t.Run("first step: the key stays unclaimed", func(t *testing.T) {
		req := b.request()
		_, err := b.do(req, failing(idempotency.Started))
		require.Equal(t, errNoAnswer, err)
		require.Empty(t, b.row(req))
		require.Empty(t, b.effects(req))
	})
	t.Run("later step: the lease is given back", func(t *testing.T) {
		req := b.request()
		_, err := b.do(req, failing(reserved))
		require.Equal(t, errNoAnswer, err)
		require.Equal(t, keyState{Point: string(reserved), Attempt: 1, LastError: ptr(errNoAnswer.Error())}, b.state(req))
		_, err = b.do(req, &threeSteps{})
		require.NoError(t, err)
		require.Equal(t, onceEach, b.effects(req))
	})
	b.requireIdle()
}

// A panic leaks no connection and leaves a key that the next run goes on with.
func TestStep_panics(t *testing.T) {
	t.Parallel()
	panicking := func(point idempotency.RecoveryPoint, inCall, inTransaction bool) operation {
		return operation{name: "three_steps", steps: func(run *idempotency.Run) idempotency.Steps {
			steps := (&threeSteps{}).Steps(run)
			step := steps[point]
			if inCall {
				step.Call = func(context.Context) error { panic("bug") }
			} else {
				step.Record = func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
					if inTransaction {
						_ = tx.QueryRow(ctx, "SELECT 1") // not even scanned
					}
					panic("bug")
				}
			}
			steps[point] = step
			return steps
		}}
	}
	tests := []struct {
		name string
		op   operation
		left string // recovery point that the key is left at
	}{
		{"in a call", panicking(reserved, true, false), "reserved"},
		{"in Record", panicking(reserved, false, false), "reserved"},
		{"in Record, in the midst of a query", panicking(paid, false, true), "paid"},
		{"in the first Record", panicking(idempotency.Started, false, false), ""},
		{"in the first Record, in the midst of a query", panicking(idempotency.Started, false, true), ""},
		{"in Steps", operation{name: "three_steps", steps: func(*idempotency.Run) idempotency.Steps { panic("bug") }}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			req := b.request()
			require.PanicsWithValue(t, "bug", func() { _, _ = b.do(req, test.op) })
			b.requireIdle()
			if test.left == "" {
				require.Empty(t, b.row(req))
			} else {
				require.Equal(t, keyState{Point: test.left, Attempt: 1, LastError: ptr("the run panicked")}, b.state(req))
			}
			_, err := b.do(req, &threeSteps{})
			require.NoError(t, err)
			require.Equal(t, onceEach, b.effects(req))
		})
	}
}

// A client that hangs up does not cancel the work (R10).
func TestStep_clientHangsUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req, op := b.request(), &threeSteps{}
	ctx, hangUp := context.WithCancel(t.Context())
	op.reserve = func(ctx context.Context, _ *idempotency.Run) error {
		hangUp()
		return ctx.Err()
	}
	_, err := b.engine.Do(ctx, req, op)
	require.NoError(t, err)
	require.Equal(t, onceEach, b.effects(req))
}

// A call ends with the lease, so that two runs never call at once (R8).
func TestStep_callOutlivesTheLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const short = 100 * time.Millisecond
	engine, err := idempotency.New(b.pool, idempotency.Config{
		LockTimeout: short,
		Clock:       time.Now,
		Logger:      slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	req, op := b.request(), &threeSteps{}
	op.pay = func(ctx context.Context, _ *idempotency.Run) error {
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		var lease time.Time
		require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT locked_at FROM idempotency_keys").Scan(&lease))
		require.False(t, deadline.After(lease.Add(short)), "the database runs on this machine, so clocks agree")
		<-ctx.Done()
		return ctx.Err()
	}
	_, err = engine.Do(t.Context(), req, op)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, keyState{Point: string(paid), Attempt: 1, LastError: ptr("context deadline exceeded")}, b.state(req))
}

// Each commit renews the lease (R8).
func TestStep_commitRenewsTheLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req, op := b.request(), &threeSteps{}
	leasedSince := func() time.Time {
		var at time.Time
		require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT locked_at FROM idempotency_keys").Scan(&at))
		return at
	}
	var first time.Time
	op.reserve = func(context.Context, *idempotency.Run) error {
		idempotencytest.AgeLease(t, b.pool, b.account, idempotency.KeyID(b.account, req.Key), lockTimeout/2)
		first = leasedSince()
		return nil
	}
	op.pay = func(context.Context, *idempotency.Run) error {
		require.Greater(t, leasedSince().Sub(first), lockTimeout/2)
		return nil
	}
	_, err := b.do(req, op)
	require.NoError(t, err)
}

// No connection is held and no transaction open during a call (R6).
func TestStep_nothingHeldDuringCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	look := func(context.Context, *idempotency.Run) error {
		b.requireIdle()
		return nil
	}
	_, err := b.do(b.request(), &threeSteps{reserve: look, pay: look})
	require.NoError(t, err)
}

func TestStep_adjacentStepsShareATransaction(t *testing.T) {
	t.Parallel()
	meter := idempotencytest.NewMeter()
	b := newBench(t, meter.Configure)
	op := operation{name: "local", steps: func(run *idempotency.Run) idempotency.Steps {
		return idempotency.Steps{
			idempotency.Started: {Record: recording(run, "created", idempotency.Advance(reserved))},
			reserved:            {Record: recording(run, "reserved", idempotency.Advance(paid))},
			paid:                {Record: recording(run, "paid", idempotency.Finish(answer(run)))},
		}
	}}
	fresh := b.request()
	meter.Reset()
	result, err := b.do(fresh, op)
	require.NoError(t, err)
	require.Equal(t, 1, meter.Commits())
	require.Equal(t, onceEach, b.effects(fresh))
	require.Equal(t, idempotency.Finished, result.To)

	abandoned := b.request()
	b.put(abandoned, op, idempotencytest.State{Point: reserved})
	meter.Reset()
	_, err = b.do(abandoned, op)
	require.NoError(t, err)
	require.Equal(t, 1, meter.Commits())
	require.Equal(t, map[string]int{"reserved": 1, "paid": 1}, b.effects(abandoned))
}

// looping advances to its own point before it finishes.
func looping() operation {
	return operation{name: "looping", steps: func(run *idempotency.Run) idempotency.Steps {
		calls := 0
		return idempotency.Steps{
			idempotency.Started: {Record: recording(run, "created", idempotency.Advance(reserved))},
			reserved: {
				Call: func(context.Context) error {
					calls++
					return nil
				},
				Record: func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
					if calls < 3 {
						effect(tx, run, "again")
						return idempotency.Advance(reserved), nil
					}
					effect(tx, run, "done")
					return idempotency.Finish(answer(run)), nil
				},
			},
		}
	}}
}

var afterLooping = map[string]int{"created": 1, "again": 2, "done": 1}

func TestStep_advancesToItsOwnPoint(t *testing.T) {
	t.Parallel()
	meter := idempotencytest.NewMeter()
	b := newBench(t, meter.Configure)
	req := b.request()
	meter.Reset()
	_, err := b.do(req, looping())
	require.NoError(t, err)
	require.Equal(t, 4, meter.Commits())
	require.Equal(t, afterLooping, b.effects(req))

	// Without a call between them too, each of its outcomes is a commit.
	req = b.request()
	tries := 0
	meter.Reset()
	_, err = b.do(req, operation{name: "local", steps: func(run *idempotency.Run) idempotency.Steps {
		return idempotency.Steps{
			idempotency.Started: {Record: recording(run, "created", idempotency.Advance(reserved))},
			reserved: {Record: func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
				if tries++; tries < 3 {
					effect(tx, run, "again")
					return idempotency.Advance(reserved), nil
				}
				effect(tx, run, "done")
				return idempotency.Finish(answer(run)), nil
			}},
		}
	}})
	require.NoError(t, err)
	require.Equal(t, 3, meter.Commits())
	require.Equal(t, afterLooping, b.effects(req))
}

// An operation that does not fit the engine is told so, and nothing is stored.
func TestStep_misuse(t *testing.T) {
	t.Parallel()
	noCall := func(context.Context) error { return nil }
	outcome := func(o idempotency.Outcome) recordFunc {
		return func(context.Context, *idempotency.Tx) (idempotency.Outcome, error) { return o, nil }
	}
	b := newBench(t)
	for want, steps := range map[string]idempotency.Steps{
		`the step from "started" must exist and make no call`:       {},
		`must exist and make no call`:                               {idempotency.Started: {Call: noCall, Record: outcome(idempotency.Advance(paid))}},
		`advanced to "nowhere", which has no step`:                  {idempotency.Started: {Record: outcome(idempotency.Advance("nowhere"))}},
		`advanced to "", which has no step`:                         {idempotency.Started: {Record: outcome(idempotency.Outcome{})}},
		`a response of status 0 cannot be stored`:                   {idempotency.Started: {Record: outcome(idempotency.Advance(idempotency.Finished))}},
		`the step from "reserved" advanced to "x", which has no st`: {idempotency.Started: {Record: outcome(idempotency.Advance(reserved))}, reserved: {Record: outcome(idempotency.Advance("x"))}},
	} {
		req := b.request()
		_, err := b.do(req, operation{name: "misuse", steps: func(*idempotency.Run) idempotency.Steps { return steps }})
		require.ErrorContains(t, err, want)
		require.Empty(t, b.row(req))
	}
	b.requireIdle()
}

// step is an operation of one Record behind a call, so that a failure leaves a
// row to look at.
func step(record func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error)) operation {
	return operation{name: "step", steps: func(run *idempotency.Run) idempotency.Steps {
		return idempotency.Steps{
			idempotency.Started: {Record: recording(run, "created", idempotency.Advance(reserved))},
			reserved: {
				Call: func(context.Context) error { return nil },
				Record: func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
					return record(ctx, tx, run)
				},
			},
		}
	}}
}

func TestTx_readsAndWrites(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.request()
	_, err := b.do(req, step(func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error) {
		effect(tx, run, "queued")
		tag, err := tx.Exec(ctx, insertEffect, uuid.New(), run.AccountID, "now", string(run.Key))
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected())

		var n int
		err = tx.QueryRow(ctx, "SELECT count(*) FROM audit_records WHERE resource_id = $1", string(run.Key)).Scan(&n)
		require.NoError(t, err)
		require.Equal(t, 2, n, "created and now; what is queued has not run yet")

		err = tx.QueryRow(ctx, "SELECT 1 WHERE false").Scan(&n)
		require.ErrorIs(t, err, pgx.ErrNoRows)
		return idempotency.Finish(answer(run)), nil
	}))
	require.NoError(t, err)
	require.Equal(t, map[string]int{"created": 1, "now": 1, "queued": 1}, b.effects(req))
	b.requireIdle()
}

// A queued statement may be looked at when the transaction is over. What it
// turns out to be changes nothing any more.
func TestTx_callbacks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, result := range map[string]error{"content": nil, "not content": errNoAnswer} {
		t.Run(name, func(t *testing.T) {
			req := b.request()
			var returned uuid.UUID
			first, err := b.do(req, step(func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error) {
				tx.Queue(insertEffect+" RETURNING account_id", uuid.New(), run.AccountID, "done", string(run.Key)).
					QueryRow(func(row pgx.Row) error { return errors.Join(row.Scan(&returned), result) })
				return idempotency.Finish(answer(run)), nil
			}))
			require.NoError(t, err)
			require.Equal(t, b.account, returned)
			require.Equal(t, map[string]int{"created": 1, "done": 1}, b.effects(req))
			again, err := b.do(req, oneStep())
			require.NoError(t, err)
			require.Equal(t, first.Response, again.Response)
		})
	}
	b.requireIdle()
}

// A statement's own error reaches the caller as it is, and the transaction goes.
func TestTx_statementFails(t *testing.T) {
	t.Parallel()
	const violation = "INSERT INTO accounts (id, name) VALUES ($1, '')"
	state := func(code string) func(*testing.T, error) {
		return func(t *testing.T, err error) {
			var pg *pgconn.PgError
			require.ErrorAs(t, err, &pg)
			require.Equal(t, code, pg.Code)
		}
	}
	mistake := func(text string) func(*testing.T, error) {
		return func(t *testing.T, err error) { require.ErrorContains(t, err, text) }
	}
	tests := []struct {
		name   string
		record func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) error
		want   func(*testing.T, error)
	}{
		{"queued", func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			tx.Queue(violation, run.KeyID)
			return nil
		}, state("23514")},
		{"queued, before others", func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			tx.Queue(violation, run.KeyID)
			effect(tx, run, "behind")
			return nil
		}, state("23514")},
		{"queued, no such table", func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			tx.Queue("TABLE nowhere")
			return nil
		}, state("42P01")},
		{"queued, its fence is its own", func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			tx.Queue("SELECT 1 / 0")
			return nil
		}, state("22012")},
		{"queued, argument that does not fit", func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			tx.Queue("SELECT $1::uuid", struct{}{})
			return nil
		}, mistake("unable to encode struct {}{}")},
		{"queued, value that does not fit", func(_ context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			tx.Queue("SELECT $1::uuid", "no uuid")
			return nil
		}, state("22P02")},
		{"queued, found at COMMIT", func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			tx.Queue("CREATE TEMPORARY TABLE twice (x uuid UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			tx.Queue("DO $$ BEGIN INSERT INTO twice VALUES ('" + run.KeyID.String() + "'), ('" + run.KeyID.String() + "'); END $$")
			return nil
		}, state("23505")},
		{"executed", func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			_, err := tx.Exec(ctx, violation, run.KeyID)
			return err
		}, state("23514")},
		{"executed, and ignored", func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) error {
			_, _ = tx.Exec(ctx, violation, run.KeyID)
			_, _ = tx.Exec(ctx, "SELECT 1")
			return nil
		}, state("23514")},
		{"asked, and ignored", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			_ = tx.QueryRow(ctx, "TABLE nowhere").Scan()
			_ = tx.QueryRow(ctx, "SELECT 1").Scan()
			return nil
		}, state("42P01")},
		{"asked, and never read", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			_ = tx.QueryRow(ctx, "SELECT 1")
			return nil
		}, mistake("conn busy")},
		{"read into what does not fit", func(ctx context.Context, tx *idempotency.Tx, _ *idempotency.Run) error {
			var n int
			return tx.QueryRow(ctx, "SELECT 'text'").Scan(&n)
		}, mistake("cannot scan")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			req := b.request()
			_, err := b.do(req, step(func(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error) {
				effect(tx, run, "must not be there")
				return idempotency.Finish(answer(run)), test.record(ctx, tx, run)
			}))
			require.Error(t, err)
			require.NotErrorIs(t, err, postgres.ErrUnavailable)
			require.NotErrorIs(t, err, idempotency.ErrInProgress)
			test.want(t, err)
			require.Equal(t, map[string]int{"created": 1}, b.effects(req))
			state := b.state(req)
			require.Equal(t, string(reserved), state.Point)
			require.False(t, state.Leased)
			b.requireIdle()

			// The connection, or the one in its place, is as good as new.
			_, err = b.do(req, step(func(_ context.Context, tx *idempotency.Tx, run *idempotency.Run) (idempotency.Outcome, error) {
				effect(tx, run, "done")
				return idempotency.Finish(answer(run)), nil
			}))
			require.NoError(t, err)
			require.Equal(t, map[string]int{"created": 1, "done": 1}, b.effects(req))
		})
	}
}
