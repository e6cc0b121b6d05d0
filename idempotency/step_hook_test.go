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

// hook gives the fixture an engine with a hook, whose context carries the recovery
// point.
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

// The call and the record run on the hook's context.
func TestOnStep_context(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.hook()
	var points []any // from the context of each call and of one record
	call := func(ctx context.Context, _ *idempotency.Run) error {
		points = append(points, ctx.Value(hookKey{}))
		return nil
	}
	op := beforeRecord(&threeSteps{reserve: call, pay: call}, reserved, func(ctx context.Context, _ *idempotency.Tx, _ *idempotency.Run) error {
		return call(ctx, nil)
	})
	f.mustDo(f.request(), op)
	require.Equal(t, []any{reserved, reserved, paid}, points)
}

// The hook is called for failed steps too, and not for a replay.
func TestOnStep_everyStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	steps := f.hook()
	req, op := f.request(), failingToPay()
	_, err := f.do(req, op)
	require.ErrorIs(t, err, errNoResponse)
	op.pay = func(context.Context, *idempotency.Run) error {
		f.update(req, "lease_token = md5(lease_token::text)::uuid, locked_at = NULL")
		return nil
	}
	_, err = f.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrLeaseLost)
	op.pay = nil
	f.mustDo(req, op)
	f.mustDo(req, op)

	type summary struct {
		from, to          idempotency.RecoveryPoint
		attempt           int
		called, committed bool
		err               error
	}
	var got []summary
	for _, step := range *steps {
		require.Equal(t, "three_steps", step.Operation)
		require.Equal(t, keyID(req), step.KeyID)
		require.True(t, step.ended)
		got = append(got, summary{step.From, step.To, step.Attempt, step.Call > 0, step.Commit > 0, step.Err})
	}
	require.Equal(t, []summary{
		{idempotency.Started, reserved, 0, false, true, nil},
		{reserved, paid, 1, true, true, nil},
		{paid, paid, 1, true, false, errNoResponse},
		{paid, paid, 2, true, true, idempotency.ErrLeaseLost},
		{paid, idempotency.Finished, 3, true, true, nil},
	}, got)
}

func TestOnStep_panic(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	steps := f.hook()
	for name, op := range map[string]idempotency.Operation{
		"in a call": &threeSteps{pay: func(context.Context, *idempotency.Run) error { panic("bug") }},
		"in a record": beforeRecord(&threeSteps{}, paid, func(context.Context, *idempotency.Tx, *idempotency.Run) error {
			panic("bug")
		}),
	} {
		req := f.request()
		f.put(req, op, released)
		*steps = nil
		require.PanicsWithValue(t, "bug", func() { _, _ = f.do(req, op) }, name)
		require.Len(t, *steps, 1, name)
		step := (*steps)[0]
		require.True(t, step.ended, name)
		require.Equal(t, paid, step.To, name)
		require.ErrorContains(t, step.Err, "the run panicked", name)
	}
}
