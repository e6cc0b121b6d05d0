package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

// The pause is as long as the key was old at its last run.
func TestCompleter_pauseGrows(t *testing.T) {
	t.Parallel()
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t), op)
	for _, test := range []struct{ age, pause time.Duration }{ // age at the last run
		{0, grace},
		{grace - time.Second, grace},
		{20 * time.Minute, 20 * time.Minute},
		{time.Hour, time.Hour},
		{30 * 24 * time.Hour, time.Hour},
		{-time.Hour, grace}, // created by a clock ahead
	} {
		req := f.putAbandoned(op, released, 0)
		f.update(req, "created_at = updated_at - $3::interval", test.age)
		f.update(req, "created_at = created_at - $3::interval, updated_at = updated_at - $3::interval", test.pause-30*time.Second)
		require.Zero(t, f.pass(), "%v: too early", test)
		f.update(req, "created_at = created_at - interval '31 seconds', updated_at = updated_at - interval '31 seconds'")
		require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass(), "%v: due", test)
	}
}

// Each client's run begins the pause again.
func TestCompleter_clientRetries(t *testing.T) {
	t.Parallel()
	op := failingToPay()
	f := newCompleterFixture(newFixture(t), op)
	req := f.putAbandoned(op, released, 2*grace)
	_, err := f.do(req, op)
	require.ErrorIs(t, err, errNoResponse)
	require.Zero(t, f.pass())
}

// However many old keys hang, half of each batch belongs to the keys that are younger than an hour, and half of
// either half to those that wait for an action.
func TestCompleter_oldKeysDoNotDelayYoungOnes(t *testing.T) {
	t.Parallel()
	var order []idempotency.Key
	op := &threeSteps{pay: func(_ context.Context, run *idempotency.Run) error {
		order = append(order, run.Key)
		return errNoResponse
	}}
	f := newCompleterFixture(newFixture(t), op)
	f.config.Batch = 8
	const waits = "action_required_at = now()"
	for range 20 {
		f.putChanged(op, released, 24*time.Hour, "created_at = now() - interval '2 days'")
		f.putChanged(op, released, 24*time.Hour, "created_at = now() - interval '2 days', "+waits)
	}
	for range 2 {
		f.putAbandoned(op, released, 2*grace)
		f.putChanged(op, released, 4*grace, waits)
	}
	young := map[idempotency.Key]bool{}
	keys, err := f.engine.Unfinished(t.Context())
	require.NoError(t, err)
	for _, key := range keys {
		young[key.Key] = time.Since(key.CreatedAt) < time.Hour
	}
	require.Equal(t, idempotency.CompleterResult{Failed: 44}, f.pass())
	count := 0
	for _, key := range order[:f.config.Batch] {
		if young[key] {
			count++
		}
	}
	require.Equal(t, 4, count, "all four are in the first batch")
}
