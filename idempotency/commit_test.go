package idempotency_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

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
