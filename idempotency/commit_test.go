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

// A COMMIT without an acknowledgement ends the run, unless its response is stored. The next request finds what was
// committed, and records each effect once (R22).
func TestCommit_lost(t *testing.T) {
	t.Parallel()
	f, wire := newWiredFixture(t)
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
