package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

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
