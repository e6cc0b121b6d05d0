package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

func newWaitingFixture(t *testing.T, waiters int, configure ...func(*pgxpool.Config)) *fixture {
	t.Helper()
	f := newFixture(t, configure...)
	f.engine = newEngine(t, f.pool, func(c *idempotency.Config) { c.Waiters = waiters })
	return f
}

type outcome struct {
	idempotency.Result
	err     error
	refused bool
}

func (f *fixture) doAsync(req idempotency.Request, op idempotency.Operation) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		result, err := f.do(req, op)
		done <- outcome{Result: result, err: err}
	}()
	return done
}

func (f *fixture) doWaiting(ctx context.Context, req idempotency.Request, op idempotency.Operation) outcome {
	for {
		result, err := f.engine.Do(ctx, req, op)
		switch {
		case !errors.Is(err, idempotency.ErrInProgress), ctx.Err() != nil:
			return outcome{Result: result, err: err}
		case !f.engine.AwaitTurn(ctx, req.AccountID, result.KeyID):
			return outcome{Result: result, err: err, refused: true}
		}
	}
}

func (f *fixture) doWaitingAsync(n int, req idempotency.Request, op idempotency.Operation) []<-chan outcome {
	f.t.Helper()
	waiting := make([]<-chan outcome, n)
	for i := range waiting {
		done := make(chan outcome, 1)
		go func() { done <- f.doWaiting(f.t.Context(), req, op) }()
		waiting[i] = done
	}
	f.requireWaiting(n)
	return waiting
}

func (f *fixture) requireWaiting(n int) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.engine.Waiters() == n }, waitFor, tick)
}

type blockedCall struct {
	reached, released chan struct{}
	err               error
	once              sync.Once
}

func newBlockedCall() *blockedCall {
	return &blockedCall{reached: make(chan struct{}), released: make(chan struct{})}
}

func (c *blockedCall) call(context.Context, *idempotency.Run) (err error) {
	c.once.Do(func() {
		close(c.reached)
		<-c.released
		err = c.err
	})
	return err
}

func (c *blockedCall) release(err error) {
	c.err = err
	close(c.released)
}

func (f *fixture) startBlocked() (idempotency.Request, *threeSteps, *blockedCall, <-chan outcome) {
	req, call := f.request(), newBlockedCall()
	op := &threeSteps{pay: call.call}
	first := f.doAsync(req, op)
	<-call.reached
	return req, op, call, first
}

// Waiting requests hold no connection and get the response of the run.
func TestAwaitTurn_runFinishes(t *testing.T) {
	t.Parallel()
	const waiters = 50
	f := newWaitingFixture(t, waiters)
	req, op, call, first := f.startBlocked()
	waiting := f.doWaitingAsync(waiters, req, op)
	f.requireIdle()
	extra := f.doWaiting(t.Context(), req, op)
	require.ErrorIs(t, extra.err, idempotency.ErrInProgress)
	require.True(t, extra.refused, "no more requests may wait")

	call.release(nil)
	executed := <-first
	require.NoError(t, executed.err)
	for _, done := range waiting {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, executed.Response, got.Response)
		require.True(t, got.Replayed)
	}
	require.Equal(t, onceEach, f.effects(req))
	require.Equal(t, keyState{Point: "finished", Attempt: 1}, f.state(req))
	require.Zero(t, f.engine.Waiters())
}

func TestAwaitTurn_runFails(t *testing.T) {
	t.Parallel()
	const waiters = 50
	f := newWaitingFixture(t, waiters, connections(4))
	req, op, call, first := f.startBlocked()
	waiting := f.doWaitingAsync(waiters, req, op)
	call.release(errNoResponse)
	require.ErrorIs(t, (<-first).err, errNoResponse)

	var results []idempotency.Result
	for _, done := range waiting {
		got := <-done
		require.NoError(t, got.err)
		results = append(results, got.Result)
	}
	requireOneExecution(t, results, make([]error, waiters))
	require.Equal(t, onceEach, f.effects(req))
	require.Equal(t, keyState{Point: "finished", Attempt: 2}, f.state(req))
	require.EqualValues(t, 3, op.calls.Load(), "reserve once, pay twice")
}

const insertOtherRequest = `
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, params_hash,
    recovery_point, lease_token, attempt, last_run_at, created_at
) VALUES ($1, $2, $3, 'start_only', 'POST', '/', '', decode(repeat('01', 33), 'hex'), 'reserved', $1, 1, now(), now())`

// AwaitChange reads the key until it changes, here from an action to a review.
func TestAwaitChange(t *testing.T) {
	t.Parallel()
	wire := &idempotencytest.Wire{}
	f := newWaitingFixture(t, 1, wire.Configure)
	req := f.putChanged(&threeSteps{}, released, time.Hour, "action_required_at = now()")
	known, err := f.engine.Key(t.Context(), req.AccountID, keyID(req))
	require.NoError(t, err)
	waited := make(chan bool, 1)
	go func() { waited <- f.engine.AwaitChange(t.Context(), known) }()
	f.requireWaiting(1)
	wire.Reset()
	require.Eventually(t, func() bool { return wire.RoundTrips() > 1 }, waitFor, tick)
	require.Empty(t, waited)
	f.update(req, "needs_review_at = now()")
	require.True(t, <-waited)
}
