package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// The costs that the package's doc promises, on a connection that has prepared the
// statements.
func TestCost_perRequest(t *testing.T) {
	t.Parallel()
	meter := idempotencytest.NewMeter()
	f := newFixture(t, meter.Configure)
	tests := []struct {
		name       string
		roundTrips int
		commits    int
		run        func(t *testing.T) func()
	}{
		{"new key, one step", 3, 1, func(*testing.T) func() {
			req := f.request()
			return func() { _, _ = f.do(req, oneStep()) }
		}},
		{"new key, three steps with two calls", 4, 3, func(*testing.T) func() {
			req := f.request()
			return func() { _, _ = f.do(req, &threeSteps{}) }
		}},
		{"new key, steps that read first", 10, 3, func(*testing.T) func() {
			req := f.request()
			return func() { _, _ = f.do(req, readFirst(&threeSteps{})) }
		}},
		{"new key, invalid", 1, 0, func(*testing.T) func() {
			req := f.request()
			return func() { _, _ = f.do(req, rejecting(oneStep())) }
		}},
		{"replay", 1, 0, func(t *testing.T) func() {
			req := f.request()
			_, err := f.do(req, oneStep())
			require.NoError(t, err)
			return func() { _, _ = f.do(req, oneStep()) }
		}},
		{"replay by id", 1, 0, func(t *testing.T) func() {
			req := f.request()
			_, err := f.do(req, oneStep())
			require.NoError(t, err)
			return func() { _, _ = f.resume(req, oneStep()) }
		}},
		{"in progress", 1, 0, func(*testing.T) func() {
			req := f.request()
			f.put(req, &threeSteps{}, idempotencytest.State{Point: paid, Leased: true})
			return func() { _, _ = f.do(req, &threeSteps{}) }
		}},
		{"takeover by a retry, one step left", 3, 1, func(*testing.T) func() {
			req := f.request()
			f.put(req, &threeSteps{}, idempotencytest.State{Point: paid})
			return func() { _, _ = f.do(req, &threeSteps{}) }
		}},
		{"takeover by id, one step left", 3, 1, func(*testing.T) func() {
			req := f.request()
			f.put(req, &threeSteps{}, idempotencytest.State{Point: paid})
			return func() { _, _ = f.resume(req, &threeSteps{}) }
		}},
		{"call without an outcome", 3, 1, func(*testing.T) func() {
			req := f.request()
			return func() {
				_, _ = f.do(req, &threeSteps{reserve: func(context.Context, *idempotency.Run) error { return errNoResponse }})
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.run(t)() // prepares the statements
			run := test.run(t)
			meter.Reset()
			run()
			require.Equal(t, test.roundTrips, meter.RoundTrips(), "round trips")
			require.Equal(t, test.commits, meter.Commits(), "commits")
		})
	}
}
