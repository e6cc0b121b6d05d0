package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

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

// Waiting requests hold no connection. They get the response of the run or, if it fails, one of
// them takes over.
func TestAwaitTurn(t *testing.T) {
	t.Parallel()
	const waiters = 50
	for name, test := range map[string]struct {
		failure  error
		attempts int
	}{
		"the run finishes": {nil, 1},
		"the run fails":    {errNoResponse, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newWaitingFixture(t, waiters, connections(4))
			req, call := f.request(), newBlockedCall()
			op := &threeSteps{pay: call.call}
			first := f.doAsync(req, op)
			<-call.reached
			waiting := f.doWaitingAsync(waiters, req, op)
			f.requireIdle()
			extra := f.doWaiting(t.Context(), req, op)
			require.ErrorIs(t, extra.err, idempotency.ErrInProgress)
			require.True(t, extra.refused, "no more requests may wait")

			call.release(test.failure)
			got := <-first
			require.ErrorIs(t, got.err, test.failure)
			results, errs := []idempotency.Result{got.Result}, []error{nil}
			if test.failure != nil {
				results, errs = nil, nil
			}
			for _, done := range waiting {
				got := <-done
				require.NoError(t, got.err)
				results, errs = append(results, got.Result), append(errs, nil)
			}
			requireOneExecution(t, results, errs)
			require.Equal(t, onceEach, f.effects(req))
			require.Equal(t, keyState{Point: "finished", Runs: test.attempts}, f.state(req))
			require.EqualValues(t, 1+test.attempts, op.calls.Load(), "reserve once, pay in each attempt")
			require.Zero(t, f.engine.Waiters())
		})
	}
}

const insertOtherRequest = `
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, fingerprint,
    recovery_point, lease_token, runs, updated_at, created_at
) VALUES ($1, $2, $3, 'start_only', 'POST', '/', '', decode(repeat('01', 33), 'hex'), 'reserved', $1, 1, now(), now())`

// The changes that end a wait for a turn, and for a change of a key that requires no action yet, or
// already does.
func TestAwait_conditions(t *testing.T) {
	t.Parallel()
	const idle = "updated_at = now() - interval '1 hour'"
	tests := map[string]struct {
		state  given
		update string
		want   [3]bool
	}{
		"finished":                  {finished, idle, [3]bool{true, true, true}},
		"leased":                    {leased, idle, [3]bool{false, false, false}},
		"lease expired":             {expired, idle, [3]bool{true, false, false}},
		"released":                  {released, idle, [3]bool{true, false, false}},
		"released by a recent run":  {released, "updated_at = now() + interval '50 seconds'", [3]bool{false, false, false}},
		"released by a clock ahead": {released, "updated_at = now() + interval '1 hour'", [3]bool{true, false, false}},
		"action required":           {released, idle + ", action_required_at = now()", [3]bool{true, true, false}},
	}
	wire := &idempotencytest.Wire{}
	f := newWaitingFixture(t, 3*len(tests), wire.Configure)
	ctx, cancel := context.WithCancel(t.Context())
	woken := map[string]*[3]atomic.Bool{}
	var waiting sync.WaitGroup
	for name, test := range tests {
		req := f.putChanged(&threeSteps{}, test.state, 0, test.update)
		key := idempotency.StoredKey{AccountID: req.AccountID, ID: keyID(req)}
		known := key
		known.ActionRequired = true
		woken[name] = &[3]atomic.Bool{}
		for i, await := range []func() bool{
			func() bool { return f.engine.AwaitTurn(ctx, key.AccountID, key.ID) },
			func() bool { return f.engine.AwaitChange(ctx, key) },
			func() bool { return f.engine.AwaitChange(ctx, known) },
		} {
			result := &woken[name][i]
			waiting.Go(func() { result.Store(await() && ctx.Err() == nil) })
		}
	}
	f.requireWaiting(13)
	wire.Reset()
	require.Eventually(t, func() bool { return wire.RoundTrips() >= 2*13 }, waitFor, tick)
	f.requireWaiting(13)
	cancel()
	waiting.Wait()
	for name, test := range tests {
		for i, want := range test.want {
			require.Equal(t, want, woken[name][i].Load(), "%s, %d", name, i)
		}
	}
}
