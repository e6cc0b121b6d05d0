package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

type hookedStep struct {
	idempotency.StepStart
	idempotency.StepEnd
	ended bool
}

type hookKey struct{}

func (f *fixture) hook() *[]*hookedStep {
	f.t.Helper()
	var steps []*hookedStep
	f.engine = newEngine(f.t, f.pool, func(c *idempotency.Config) {
		c.OnStep = func(ctx context.Context, start idempotency.StepStart) (context.Context, func(idempotency.StepEnd)) {
			step := &hookedStep{StepStart: start}
			steps = append(steps, step)
			return context.WithValue(ctx, hookKey{}, start.From), func(end idempotency.StepEnd) {
				step.StepEnd, step.ended = end, true
			}
		}
	})
	return &steps
}

func TestOnStep_everyStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	steps := f.hook()
	req, op := f.request(), failingToPay()
	_, err := f.do(req, op)
	require.ErrorIs(t, err, errNoResponse)
	op.pay = func(ctx context.Context, _ *idempotency.Run) error {
		require.Equal(t, paid, ctx.Value(hookKey{}), "the call runs on the hook's context")
		f.update(req, "lease_token = md5(lease_token::text)::uuid, locked_at = NULL")
		return nil
	}
	_, err = f.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrLeaseLost)
	op.pay = nil
	f.mustDo(req, op)
	f.mustDo(req, op)

	type summary struct {
		from              idempotency.RecoveryPoint
		attempt           int
		called, committed bool
		err               error
	}
	var got []summary
	for _, step := range *steps {
		require.Equal(t, "three_steps", step.Operation)
		require.Equal(t, keyID(req), step.KeyID)
		require.True(t, step.ended)
		got = append(got, summary{step.From, step.RunNumber, step.Call > 0, step.Commit > 0, step.Err})
	}
	require.Equal(t, []summary{
		{idempotency.Started, 0, false, true, nil},
		{reserved, 1, true, true, nil},
		{paid, 1, true, false, errNoResponse},
		{paid, 2, true, true, idempotency.ErrLeaseLost},
		{paid, 3, true, true, nil},
	}, got)
}

func TestOnStep_panic(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	steps := f.hook()
	req, op := f.request(), &threeSteps{pay: func(context.Context, *idempotency.Run) error { panic("bug") }}
	f.put(req, op, released)
	require.PanicsWithValue(t, "bug", func() { _, _ = f.do(req, op) })
	require.Len(t, *steps, 1)
	step := (*steps)[0]
	require.True(t, step.ended)
	require.ErrorContains(t, step.Err, "the run panicked")
}
