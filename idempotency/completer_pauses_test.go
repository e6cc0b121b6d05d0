package idempotency_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// Each try that failed doubles the pause, up to six hours.
func TestCompleter_growingPause(t *testing.T) {
	t.Parallel()
	tests := []struct {
		grace    time.Duration
		attempts int // behind it
		pause    time.Duration
	}{
		{grace, 0, grace},
		{grace, 1, 2 * grace},
		{grace, 2, 4 * grace},
		{grace, 3, 8 * grace},
		{grace, 6, 64 * grace},
		{grace, 7, 6 * time.Hour},
		{grace, 20, 6 * time.Hour},
		{grace, math.MaxInt32 - 1, 6 * time.Hour},
		{lockTimeout + time.Second, 8, 256 * (lockTimeout + time.Second)},
		{4 * time.Hour, 0, 4 * time.Hour},
		{4 * time.Hour, 1, 6 * time.Hour},
		{8 * time.Hour, 0, 8 * time.Hour},
		{8 * time.Hour, 3, 8 * time.Hour},
		{100 * 24 * time.Hour, 50, 100 * 24 * time.Hour},
	}
	b := newBench(t)
	for _, test := range tests {
		op := &threeSteps{}
		n := newNight(b, op)
		n.config.Grace, n.config.MaxAttempts = test.grace, math.MaxInt32
		req := n.abandon(op, idempotencytest.State{Point: paid}, test.pause-30*time.Second)
		n.set(req, "completer_attempt = $3", test.attempts)
		require.Zero(t, n.pass(), "%v: too early", test)
		n.age(req, 31*time.Second)
		require.Equal(t, idempotency.Pass{Completed: 1}, n.pass(), "%v: due", test)
	}
}

// The pause begins with the try.
func TestCompleter_pauseAfterATry(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	n := newNight(newBench(t), op)
	req := n.abandon(op, idempotencytest.State{Point: paid}, 48*time.Hour)
	require.Equal(t, idempotency.Pass{Failed: 1}, n.pass())
	n.age(req, 2*grace-30*time.Second)
	require.Zero(t, n.pass())
	n.age(req, 31*time.Second)
	require.Equal(t, idempotency.Pass{Failed: 1}, n.pass())
	n.age(req, 4*grace-30*time.Second)
	require.Zero(t, n.pass())
}

// A client that comes back often does not use up what the completer has.
func TestCompleter_attemptsAreItsOwn(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	n := newNight(newBench(t), op)
	req := n.abandon(op, idempotencytest.State{Point: paid}, 0)
	for range 5 * maxAttempts {
		_, err := n.do(req, op)
		require.ErrorIs(t, err, errNoAnswer)
	}
	require.Zero(t, n.upkeep(req))
	n.age(req, 2*grace)
	require.Equal(t, idempotency.Pass{Failed: 1}, n.pass())
	require.Equal(t, upkeep{Attempts: 1}, n.upkeep(req))
}
