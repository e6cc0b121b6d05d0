package idempotency_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

// Whoever measures hears of each phase that was gone through, of those that fail
// too, and of a replay nothing.
func TestObserve(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var heard []idempotency.Phase
	engine, err := idempotency.New(b.pool, idempotency.Config{
		LockTimeout: lockTimeout, Clock: time.Now, Observe: func(p idempotency.Phase) { heard = append(heard, p) }, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	op := &threeSteps{pay: func(context.Context, *idempotency.Run) error { return errNoAnswer }}
	req := b.request()
	_, err = engine.Do(t.Context(), req, op)
	require.ErrorIs(t, err, errNoAnswer)
	op.pay = nil
	_, err = engine.Do(t.Context(), req, op)
	require.NoError(t, err)
	_, err = engine.Do(t.Context(), req, op)
	require.NoError(t, err)

	require.Len(t, heard, 4)
	for i, want := range []struct {
		from             idempotency.RecoveryPoint
		called, recorded bool
		err              error
	}{
		{from: idempotency.Started, recorded: true},
		{from: reserved, called: true, recorded: true},
		{from: paid, called: true, err: errNoAnswer},
		{from: paid, called: true, recorded: true},
	} {
		got := heard[i]
		require.Equal(t, "three_steps", got.Operation)
		require.Equal(t, want.from, got.From)
		require.Equal(t, want.called, got.Call > 0, got)
		require.Equal(t, want.recorded, got.Record > 0, got)
		require.ErrorIs(t, got.Err, want.err)
	}
}

// A run that was overtaken is told apart from one that met another.
func TestErrLeaseLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	op := &threeSteps{}
	op.pay = func(ctx context.Context, _ *idempotency.Run) error {
		_, err := b.pool.Exec(ctx, "UPDATE idempotency_keys SET lease_token = gen_random_uuid()") // as a takeover does
		return err
	}
	req := b.request()
	_, err := b.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrLeaseLost)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	_, err = b.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	require.NotErrorIs(t, err, idempotency.ErrLeaseLost)
}
