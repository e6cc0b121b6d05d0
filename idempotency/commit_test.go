package idempotency_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

var faults = map[string]idempotencytest.Fault{
	"cut before":   idempotencytest.CutBefore,
	"cut after":    idempotencytest.CutAfter,
	"fatal before": idempotencytest.FatalBefore,
	"fatal after":  idempotencytest.FatalAfter,
	"error after":  idempotencytest.ErrorAfter,
}

func newProxiedFixture(t *testing.T, configure ...func(*pgxpool.Config)) (*fixture, *idempotencytest.Proxy) {
	t.Helper()
	proxy := idempotencytest.NewProxy(t)
	return newFixture(t, append(configure, proxy.Configure)...), proxy
}

func readFirst(op idempotency.Operation) idempotency.Operation {
	for _, point := range []idempotency.RecoveryPoint{idempotency.Started, reserved, paid} {
		op = beforeRecord(op, point, query)
	}
	return op
}

// looping advances to its own point twice: token and recovery point stay the same.
func looping() operation {
	return operation{name: "looping", steps: func(run *idempotency.Run) idempotency.Steps {
		calls := 0
		return idempotency.Steps{
			Start: recordEffect(run, "created", idempotency.Advance(reserved)),
			From: map[idempotency.RecoveryPoint]idempotency.Step{
				reserved: func(context.Context) (idempotency.Record, error) {
					if calls++; calls < 3 {
						return recordEffect(run, "again", idempotency.Advance(reserved)), nil
					}
					return finishWith(run, "done"), nil
				},
			},
		}
	}}
}

var afterLooping = map[string]int{"created": 1, "again": 2, "done": 1}

// The row shows whether a lost COMMIT was executed (R22). The run repeats no call and
// records each effect once.
func TestCommit_lost(t *testing.T) {
	t.Parallel()
	calls := &threeSteps{}
	tests := []struct {
		op      idempotency.Operation
		commits []int
		effects map[string]int
		calls   int64
	}{
		{calls, []int{1, 2, 3}, onceEach, 2},
		{readFirst(calls), []int{1, 2, 3}, onceEach, 2},
		{oneStep(), []int{1}, map[string]int{"done": 1}, 0},
		{looping(), []int{2, 3, 4}, afterLooping, 0},
	}
	f, proxy := newProxiedFixture(t)
	for name, fault := range faults {
		withMessage := fault == idempotencytest.FatalBefore || fault == idempotencytest.FatalAfter
		for i, test := range tests {
			if withMessage && i > 0 {
				break // the message before the cut does not depend on the operation
			}
			for _, commit := range test.commits {
				t.Run(fmt.Sprintf("%s COMMIT %d of operation %d", name, commit, i), func(t *testing.T) {
					req, before := f.request(), calls.calls.Load()
					proxy.Strike(commit, fault)
					first := f.mustDo(req, test.op)
					require.True(t, proxy.Struck())
					require.Equal(t, 201, first.Response.Status)
					require.Equal(t, idempotency.Finished, first.To)
					require.Equal(t, test.calls, calls.calls.Load()-before)
					require.Equal(t, test.effects, f.effects(req))

					again := f.mustDo(req, test.op)
					require.True(t, again.Replayed)
					require.Equal(t, first.Response, again.Response)
				})
			}
		}
	}
	f.requireIdle()
	require.Zero(t, proxy.Cancels())
}

// The lease is released if a failure follows a lost COMMIT.
func TestCommit_lostBeforeFailure(t *testing.T) {
	t.Parallel()
	f, proxy := newProxiedFixture(t)
	for name, fault := range faults {
		t.Run(name+", repeated record fails", func(t *testing.T) {
			attempts := 0
			op := beforeRecord(&threeSteps{}, idempotency.Started, func(context.Context, *idempotency.Tx, *idempotency.Run) error {
				if attempts++; attempts > 1 {
					return errNoResponse
				}
				return nil
			})
			req := f.request()
			proxy.Strike(1, fault)
			_, err := f.do(req, op)
			require.ErrorIs(t, err, errNoResponse)
			if f.row(req) != "" {
				require.False(t, f.state(req).Leased)
			}
			f.mustDo(req, &threeSteps{})
			require.Equal(t, onceEach, f.effects(req))
		})
		t.Run(name+", next call fails", func(t *testing.T) {
			req := f.request()
			proxy.Strike(1, fault)
			result, err := f.do(req, &threeSteps{reserve: func(context.Context, *idempotency.Run) error { return errNoResponse }})
			require.ErrorIs(t, err, errNoResponse)
			require.Zero(t, result.Response)
			require.Equal(t, keyState{Point: string(reserved), Attempt: 1, LastError: ptr(errNoResponse.Error())}, f.state(req))
		})
	}
}

// The fence rejects a transaction that reaches the server after its repetition.
func TestCommit_arrivesAfterRepetition(t *testing.T) {
	t.Parallel()
	for commit := 2; commit <= 4; commit++ {
		t.Run(fmt.Sprintf("COMMIT %d", commit), func(t *testing.T) {
			t.Parallel()
			f, proxy := newProxiedFixture(t, connections(2))
			req := f.request()
			proxy.Strike(commit, idempotencytest.HoldBatch)
			f.mustDo(req, looping())
			before := f.row(req)
			proxy.Release()
			require.Eventually(t, func() bool { return proxy.Held() == 0 }, waitFor, tick)
			require.Equal(t, before, f.row(req))
			require.Equal(t, afterLooping, f.effects(req))
		})
	}
}

// A commit that no standby has confirmed is not reported as committed (R22).
func TestCommit_notReplicated(t *testing.T) {
	t.Parallel()
	f, proxy := newProxiedFixture(t)
	for commit, left := range []string{string(reserved), string(paid), string(idempotency.Finished)} {
		t.Run(left, func(t *testing.T) {
			req, op := f.request(), &threeSteps{}
			proxy.Strike(commit+1, idempotencytest.NotReplicated)
			result, err := f.do(req, op)
			require.ErrorIs(t, err, postgres.ErrUnavailable)
			require.ErrorContains(t, err, "not replicated")
			require.Zero(t, result.Response)
			require.True(t, proxy.Struck())
			state := f.state(req)
			require.Equal(t, left, state.Point)
			require.False(t, state.Leased)
			require.Equal(t, left == string(idempotency.Finished), state.LastError == nil)

			result = f.mustDo(req, op)
			require.Equal(t, 201, result.Response.Status)
			require.Equal(t, onceEach, f.effects(req))
			require.EqualValues(t, 2, op.calls.Load())
		})
	}
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

// The outcome of a delayed COMMIT is unknown. It may be executed at any time, once.
func TestCommit_delayed(t *testing.T) {
	t.Parallel()
	for commit, at := range []string{"", string(reserved), string(paid)} {
		t.Run(fmt.Sprintf("COMMIT %d", commit+1), func(t *testing.T) {
			t.Parallel()
			f, proxy := newProxiedFixture(t, connections(2), sessionSetting("lock_timeout", "100"))
			req, op := f.request(), &threeSteps{}
			proxy.Strike(commit+1, idempotencytest.HoldCommit)
			result, err := f.do(req, op)
			require.Error(t, err)
			require.Zero(t, result.Response)
			if commit == 0 {
				require.ErrorIs(t, err, idempotency.ErrInProgress) // the repeated claim waits for the first one
				require.Empty(t, f.row(req))
			} else {
				require.ErrorIs(t, err, postgres.ErrUnavailable)
				require.NotErrorIs(t, err, idempotency.ErrInProgress)
				require.Equal(t, keyState{Point: at, Leased: true, Attempt: 1}, f.state(req))
			}
			_, err = f.do(req, op)
			require.ErrorIs(t, err, idempotency.ErrInProgress)

			before := f.row(req)
			proxy.Release()
			require.Eventually(t, func() bool { return proxy.Held() == 0 }, waitFor, tick) // it has released its locks
			require.NotEqual(t, before, f.row(req))
			if commit < 2 {
				f.ageLease(req, 2*lockTimeout)
			}
			result = f.mustDo(req, op)
			require.Equal(t, 201, result.Response.Status)
			require.EqualValues(t, 2, op.calls.Load())
			require.Equal(t, onceEach, f.effects(req))
			require.Zero(t, proxy.Cancels())
		})
	}
}

// A run that waits for its own delayed COMMIT continues after it.
func TestCommit_delayedAndReleased(t *testing.T) {
	t.Parallel()
	for commit := 1; commit <= 3; commit++ {
		t.Run(fmt.Sprintf("COMMIT %d", commit), func(t *testing.T) {
			t.Parallel()
			f, proxy := newProxiedFixture(t, connections(3), sessionSetting("lock_timeout", "30000"))
			req, op := f.request(), &threeSteps{}
			proxy.Strike(commit, idempotencytest.HoldCommit)
			done := f.doAsync(req, op)
			idempotencytest.AwaitLockWait(t, f.pool)
			proxy.Release()
			result := <-done
			require.NoError(t, result.err)
			require.Equal(t, 201, result.Response.Status)
			require.EqualValues(t, 2, op.calls.Load())
			require.Equal(t, onceEach, f.effects(req))
		})
	}
}
