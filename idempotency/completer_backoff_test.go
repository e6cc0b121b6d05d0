package idempotency_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// Each attempt of the completer doubles the grace, up to six hours.
func TestCompleter_backoffGrows(t *testing.T) {
	t.Parallel()
	tests := []struct {
		grace    time.Duration
		attempts int // so far
		backoff  time.Duration
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
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t), op)
	for _, test := range tests {
		f.config.Grace, f.config.MaxAttempts = test.grace, math.MaxInt32
		req := f.putAbandoned(op, idempotencytest.State{Point: paid}, test.backoff-30*time.Second)
		f.update(req, "completer_attempt = $3", test.attempts)
		require.Zero(t, f.pass(), "%v: too early", test)
		f.ageRun(req, 31*time.Second)
		require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass(), "%v: due", test)
	}
}

// The backoff begins with the attempt.
func TestCompleter_backoffAfterAnAttempt(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	f := newCompleterFixture(newFixture(t), op)
	req := f.putAbandoned(op, idempotencytest.State{Point: paid}, 48*time.Hour)
	require.Equal(t, idempotency.CompleterResult{Failed: 1}, f.pass())
	f.ageRun(req, 2*grace-30*time.Second)
	require.Zero(t, f.pass())
	f.ageRun(req, 31*time.Second)
	require.Equal(t, idempotency.CompleterResult{Failed: 1}, f.pass())
	f.ageRun(req, 4*grace-30*time.Second)
	require.Zero(t, f.pass())
}

// The retries of a client use up none of the completer's attempts.
func TestCompleter_clientRetries(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	f := newCompleterFixture(newFixture(t), op)
	req := f.putAbandoned(op, idempotencytest.State{Point: paid}, 0)
	for range 5 * maxAttempts {
		_, err := f.do(req, op)
		require.ErrorIs(t, err, errNoResponse)
	}
	require.Zero(t, f.completerState(req))
	f.ageRun(req, 2*grace)
	require.Equal(t, idempotency.CompleterResult{Failed: 1}, f.pass())
	require.Equal(t, completerState{Attempts: 1}, f.completerState(req))
}
