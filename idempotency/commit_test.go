package idempotency_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

var cuts = map[string]idempotencytest.Fault{
	"cut before": idempotencytest.CutBefore,
	"cut after":  idempotencytest.CutAfter,
}

func newWiredFixture(t *testing.T) (*fixture, *idempotencytest.Wire) {
	t.Helper()
	wire := &idempotencytest.Wire{}
	return newFixture(t, wire.Configure), wire
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
			At: map[idempotency.RecoveryPoint]idempotency.StepFunc{
				reserved: func(context.Context) (idempotency.RecordFunc, error) {
					if calls++; calls < 3 {
						return recordEffect(run, "again", idempotency.Advance(reserved)), nil
					}
					return finishWith(run, "done"), nil
				},
			},
		}
	}}
}

// The row shows whether a lost COMMIT was executed.
func TestCommit_lost(t *testing.T) {
	t.Parallel()
	calls := &threeSteps{}
	f, wire := newWiredFixture(t)
	for name, fault := range cuts {
		for i, test := range []struct {
			op      idempotency.Operation
			commits []int
			effects map[string]int
			calls   int64
		}{
			{calls, []int{1, 2, 3}, onceEach, 2},
			{readFirst(calls), []int{1, 2, 3}, onceEach, 2},
			{oneStep(), []int{1}, map[string]int{"done": 1}, 0},
			{looping(), []int{2, 3, 4}, map[string]int{"created": 1, "again": 2, "done": 1}, 0},
		} {
			for _, commit := range test.commits {
				t.Run(fmt.Sprintf("%s COMMIT %d of operation %d", name, commit, i), func(t *testing.T) {
					req, before := f.request(), calls.calls.Load()
					wire.Strike(commit, fault)
					first := f.mustDo(req, test.op)
					require.True(t, wire.Struck())
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
}

func TestCommit_lostBeforeFailure(t *testing.T) {
	t.Parallel()
	f, wire := newWiredFixture(t)
	for name, fault := range cuts {
		t.Run(name+", repeated record fails", func(t *testing.T) {
			attempts := 0
			op := beforeRecord(&threeSteps{}, idempotency.Started, func(context.Context, *idempotency.Tx, *idempotency.Run) error {
				if attempts++; attempts > 1 {
					return errNoResponse
				}
				return nil
			})
			req := f.request()
			wire.Strike(1, fault)
			_, err := f.do(req, op)
			require.ErrorIs(t, err, errNoResponse)
			if f.row(req) != "" {
				require.False(t, f.state(req).Leased)
			}
			f.mustDo(req, &threeSteps{})
			require.Equal(t, onceEach, f.effects(req))
		})
	}
}

// A commit that no standby has confirmed is not reported as committed.
func TestCommit_notReplicated(t *testing.T) {
	t.Parallel()
	f, wire := newWiredFixture(t)
	for commit, left := range []string{string(reserved), string(paid), string(idempotency.Finished)} {
		t.Run(left, func(t *testing.T) {
			req, op := f.request(), &threeSteps{}
			wire.Strike(commit+1, idempotencytest.NotReplicated)
			result, err := f.do(req, op)
			require.ErrorIs(t, err, postgres.ErrUnavailable)
			require.ErrorContains(t, err, "not replicated")
			require.Zero(t, result.Response)
			require.True(t, wire.Struck())
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
