package idempotency_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

func untilPaid(isPaid *bool, failure *error) *threeSteps {
	return &threeSteps{pay: func(context.Context, *idempotency.Run) error {
		switch {
		case *failure != nil:
			return *failure
		case !*isPaid:
			return fmt.Errorf("the customer is absent: %w", idempotency.ErrActionRequired)
		default:
			return nil
		}
	}}
}

func TestCompleter_actionTimeout(t *testing.T) {
	t.Parallel()
	const limit = actionTimeout - leaseDuration
	for name, test := range map[string]struct {
		age, lastRun time.Duration
		due          bool
	}{
		"before the timeout":                 {limit - 10*time.Second, 2 * grace, false},
		"before it, long ago":                {limit - 10*time.Second, 4 * grace, true},
		"no run since the timeout":           {limit + 10*time.Second, 11 * time.Second, true},
		"run since the timeout":              {limit + 10*time.Second, 9 * time.Second, false},
		"run since, within the grace":        {limit + time.Hour, grace - 10*time.Second, false},
		"no run since the timeout, long ago": {limit + time.Hour, 2 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := untilPaid(new(bool), new(error))
			f := newCompleterFixture(newFixture(t), op)
			req := f.putAbandoned(op, released, 0)
			f.update(req, "action_required_at = now(), created_at = now() - $3::interval, updated_at = now() - $4::interval", test.age, test.lastRun)
			want := idempotency.CompleterResult{}
			if test.due {
				want.ActionRequired = 1
			}
			require.Equal(t, want, f.pass())
			require.Zero(t, f.pass(), "once per grace")
		})
	}
}

func TestCompleter_actionRequired(t *testing.T) {
	t.Parallel()
	var isPaid bool
	var failure error
	op := untilPaid(&isPaid, &failure)
	f := newCompleterFixture(newFixture(t), op)
	req := f.request()
	_, err := f.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrActionRequired)
	stats, err := idempotency.ReadStats(t.Context(), f.pool)
	require.NoError(t, err)
	require.Positive(t, stats.OldestUnfinished)
	require.Empty(t, stats.Unfinished)

	f.ageRun(req, 2*grace)
	require.Zero(t, f.pass(), "too early")
	for range 3 {
		f.ageRun(req, 4*grace)
		require.Equal(t, idempotency.CompleterResult{ActionRequired: 1}, f.pass())
		require.Zero(t, f.pass(), "too early")
	}

	failure = errNoResponse
	f.ageRun(req, 4*grace)
	require.Equal(t, idempotency.CompleterResult{Failed: 1}, f.pass())
	f.ageRun(req, 48*time.Hour)
	require.Equal(t, idempotency.CompleterResult{Failed: 1}, f.pass())

	failure = nil
	_, err = f.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrActionRequired)
	isPaid = true
	f.ageRun(req, 4*grace)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass())
	require.Equal(t, onceEach, f.effects(req))
	f.requireIdle()
}
