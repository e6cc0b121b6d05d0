package idempotency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// ahead is how far the clock of the primary that wrote a key was ahead of today's.
const ahead = "interval '400 days'"

const (
	releasedAhead = "created_at = now() + " + ahead + ", last_run_at = now() + " + ahead
	leasedAhead   = releasedAhead + ", locked_at = now() + " + ahead
)

// A lease that starts in the future is none (R8): each way to run a key takes it over.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t), op)
	completed := func(idempotency.Request) { require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass()) }
	for name, test := range map[string]struct {
		update string
		run    func(req idempotency.Request)
	}{
		"retry":                          {leasedAhead, func(req idempotency.Request) { f.mustDo(req, op) }},
		"completer":                      {leasedAhead, completed},
		"completer, after some attempts": {leasedAhead + ", completer_attempt = 2", completed},
		"completer, released key":        {releasedAhead, completed},
		"completer, action required":     {releasedAhead + ", action_required_at = now()", completed},
		"operator": {leasedAhead + ", needs_review_at = now() + " + ahead, func(req idempotency.Request) {
			require.NoError(t, f.engine.Requeue(t.Context(), req.AccountID, keyID(req), f.operations))
			_, err := f.resume(req, op)
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			req := f.request()
			f.put(req, op, idempotencytest.State{Point: reserved})
			f.update(req, test.update)
			status, err := f.engine.Status(t.Context(), req.AccountID, keyID(req))
			require.NoError(t, err)
			require.True(t, status.ClockAhead)
			require.False(t, status.Leased)
			wakes, err := f.engine.PollWakes(t.Context(), req.AccountID, keyID(req), "turn")
			require.NoError(t, err)
			require.True(t, wakes)
			if !status.ActionRequired {
				require.Equal(t, []idempotency.Key{req.Key}, f.stuck(10))
			}

			test.run(req)
			require.Equal(t, map[string]int{"reserved": 1, "paid": 1}, f.effects(req))
			status, err = f.engine.Status(t.Context(), req.AccountID, keyID(req))
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), status.LastRunAt, time.Minute)
			require.WithinDuration(t, time.Now(), *status.FinishedAt, time.Minute)
		})
	}
}

// A clock that ran ahead does not hide that clients run a key without success.
func TestClockAhead_polledKey(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	f := newCompleterFixture(newFixture(t), op)
	f.putChanged(op, released, 0, "attempt = 1000, created_at = now() + "+ahead)
	require.Equal(t, idempotency.CompleterResult{NeedsReview: 1}, f.pass())
}

// Two clocks are never equal: a lease that starts within LockTimeout is one.
func TestClockAhead_slightly(t *testing.T) {
	t.Parallel()
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t), op)
	req := f.putChanged(op, leased, 0, "created_at = now() + interval '30 s', last_run_at = now() + interval '30 s', locked_at = now() + interval '30 s'")
	_, err := f.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	wakes, err := f.engine.PollWakes(t.Context(), req.AccountID, keyID(req), "turn")
	require.NoError(t, err)
	require.False(t, wakes)
	status, err := f.engine.Status(t.Context(), req.AccountID, keyID(req))
	require.NoError(t, err)
	require.False(t, status.ClockAhead)
	require.Empty(t, f.stuck(10))
	require.Zero(t, f.pass())
}
