package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// What the package's doc promises, on a connection that knows the statements.
func TestCost(t *testing.T) {
	t.Parallel()
	meter := idempotencytest.NewMeter()
	b := newBench(t, meter.Configure)
	tests := []struct {
		name       string
		roundTrips int
		commits    int
		run        func(t *testing.T) func()
	}{
		{"new key, one step", 3, 1, func(*testing.T) func() {
			req := b.request()
			return func() { _, _ = b.do(req, oneStep()) }
		}},
		{"new key, three steps with two calls", 4, 3, func(*testing.T) func() {
			req := b.request()
			return func() { _, _ = b.do(req, &threeSteps{}) }
		}},
		{"new key, steps that read first", 10, 3, func(*testing.T) func() {
			req := b.request()
			return func() { _, _ = b.do(req, &readingSteps{}) }
		}},
		{"new key, invalid", 1, 0, func(*testing.T) func() {
			req := b.request()
			req.Validate = func() error { return errNoAnswer }
			return func() { _, _ = b.do(req, oneStep()) }
		}},
		{"replay", 1, 0, func(t *testing.T) func() {
			req := b.request()
			_, err := b.do(req, oneStep())
			require.NoError(t, err)
			return func() { _, _ = b.do(req, oneStep()) }
		}},
		{"replay by id", 1, 0, func(t *testing.T) func() {
			req := b.request()
			_, err := b.do(req, oneStep())
			require.NoError(t, err)
			return func() { _, _ = b.resume(req, oneStep()) }
		}},
		{"in progress", 1, 0, func(*testing.T) func() {
			req := b.request()
			b.put(req, &threeSteps{}, idempotencytest.State{Point: paid, Leased: true})
			return func() { _, _ = b.do(req, &threeSteps{}) }
		}},
		{"takeover by a retry, one step left", 3, 1, func(*testing.T) func() {
			req := b.request()
			b.put(req, &threeSteps{}, idempotencytest.State{Point: paid})
			return func() { _, _ = b.do(req, &threeSteps{}) }
		}},
		{"takeover by id, one step left", 3, 1, func(*testing.T) func() {
			req := b.request()
			b.put(req, &threeSteps{}, idempotencytest.State{Point: paid})
			return func() { _, _ = b.resume(req, &threeSteps{}) }
		}},
		{"call without an outcome", 3, 1, func(*testing.T) func() {
			req := b.request()
			return func() {
				_, _ = b.do(req, &threeSteps{reserve: func(context.Context, *idempotency.Run) error { return errors.New("no") }})
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
