package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

// hookedStep is what the hook received.
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
	op := &threeSteps{pay: func(context.Context, *idempotency.Run) error { return errNoResponse }}
	req := f.request()
	_, err := f.do(req, op)
	require.ErrorIs(t, err, errNoResponse)
	op.pay = nil
	f.mustDo(req, op)
	f.mustDo(req, op)

	lost := f.request()
	_, err = f.do(lost, &threeSteps{reserve: func(context.Context, *idempotency.Run) error {
		f.update(lost, "lease_token = gen_random_uuid()")
		return nil
	}})
	require.ErrorIs(t, err, idempotency.ErrLeaseLost)

	require.Len(t, *steps, 6)
	for i, want := range []struct {
		attempt           int
		from, to          idempotency.RecoveryPoint
		called, committed bool
		err               error
	}{
		{attempt: 0, from: idempotency.Started, to: reserved, committed: true},
		{attempt: 1, from: reserved, to: paid, called: true, committed: true},
		{attempt: 1, from: paid, to: paid, called: true, err: errNoResponse},
		{attempt: 2, from: paid, to: idempotency.Finished, called: true, committed: true},
		{attempt: 0, from: idempotency.Started, to: reserved, committed: true},
		{attempt: 1, from: reserved, to: reserved, called: true, committed: true, err: idempotency.ErrLeaseLost},
	} {
		got := (*steps)[i]
		require.Equal(t, "three_steps", got.Operation)
		if i < 4 {
			require.Equal(t, keyID(req), got.KeyID)
		}
		require.Equal(t, want.attempt, got.Attempt)
		require.Equal(t, want.from, got.From)
		require.True(t, got.ended)
		require.Equal(t, want.to, got.To)
		require.Equal(t, want.called, got.Call > 0, got)
		require.Equal(t, want.committed, got.Commit > 0, got)
		require.ErrorIs(t, got.Err, want.err)
	}
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
