package idempotency_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

func TestCompleter_backoffGrows(t *testing.T) {
	t.Parallel()
	tests := []struct {
		grace    time.Duration
		attempts int
		backoff  time.Duration
	}{
		{grace, 0, grace},
		{grace, 6, 64 * grace},
		{grace, 7, 6 * time.Hour},
		{grace, math.MaxInt32 - 1, 6 * time.Hour},
		{lockTimeout + time.Second, 8, 256 * (lockTimeout + time.Second)},
		{4 * time.Hour, 1, 6 * time.Hour},
		{8 * time.Hour, 3, 8 * time.Hour},
	}
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t), op)
	for _, test := range tests {
		f.config.Grace, f.config.MaxAttempts = test.grace, math.MaxInt32
		req := f.putAbandoned(op, released, test.backoff-30*time.Second)
		f.update(req, "completer_attempt = $3", test.attempts)
		require.Zero(t, f.pass(), "%v: too early", test)
		f.ageRun(req, 31*time.Second)
		require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass(), "%v: due", test)
	}
}

func TestCompleter_clientRetries(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	f := newCompleterFixture(newFixture(t), op)
	req := f.putAbandoned(op, released, 0)
	for range 2 * maxAttempts {
		_, err := f.do(req, op)
		require.ErrorIs(t, err, errNoResponse)
	}
	require.Zero(t, f.completerState(req))
	f.ageRun(req, 2*grace)
	require.Equal(t, idempotency.CompleterResult{Failed: 1}, f.pass())
	require.Equal(t, completerState{Attempts: 1}, f.completerState(req))
}

// A key that clients keep running is never abandoned, so it needs review once it is old.
func TestCompleter_polledKey(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	f := newCompleterFixture(newFixture(t), op)
	const old = "created_at = now() - interval '31 hours', "
	for name, test := range map[string]struct {
		update string
		want   idempotency.CompleterResult
	}{
		"polled for days":             {old + "attempt = 1000", idempotency.CompleterResult{NeedsReview: 1}},
		"polled after some attempts":  {old + "attempt = 1000, completer_attempt = 2", idempotency.CompleterResult{NeedsReview: 1}},
		"polled now":                  {old + "attempt = 1000, locked_at = now()", idempotency.CompleterResult{NeedsReview: 1}},
		"created by a clock ahead":    {"created_at = now() + interval '400 days', attempt = 1000", idempotency.CompleterResult{NeedsReview: 1}},
		"young":                       {"created_at = now() - interval '29 hours', attempt = 1000", idempotency.CompleterResult{}},
		"returned to the completer":   {old + "attempt = 5", idempotency.CompleterResult{}},
		"marked before":               {old + "attempt = 1000, needs_review_at = now()", idempotency.CompleterResult{}},
		"not polled, and not yet due": {old + "attempt = 1000, last_run_at = now() - interval '6 min', completer_attempt = 2", idempotency.CompleterResult{}},
	} {
		t.Run(name, func(t *testing.T) {
			req := f.putChanged(op, released, 0, test.update)
			require.Equal(t, test.want, f.pass())
			require.Equal(t, test.want.NeedsReview > 0 || name == "marked before", f.completerState(req).NeedsReview)
			require.Zero(t, f.pass())
			f.update(req, "finished_at = NULL, needs_review_at = now()")
		})
	}
	require.Zero(t, op.calls.Load(), "a mark is no run")
	require.Equal(t, 4, f.log.count(`level=ERROR msg="key needs review`))

	// A run of the client may still finish the key.
	req := f.putChanged(op, released, 0, old+"attempt = 1000")
	require.Equal(t, idempotency.CompleterResult{NeedsReview: 1}, f.pass())
	op.pay = nil
	f.mustDo(req, op)
	require.False(t, f.completerState(req).NeedsReview)
}
