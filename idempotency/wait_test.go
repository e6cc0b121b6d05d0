package idempotency_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
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

// Waiting requests hold no connection (R6) and get the response of the run.
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

func TestAwaitStatus_ends(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		known   idempotency.StoredKey
		ignored string
		columns string
	}{
		"finished":               {columns: finishedColumns},
		"needs review":           {columns: "needs_review_at = now()"},
		"action required":        {columns: "action_required_at = now()"},
		"action required before": {known: idempotency.StoredKey{ActionRequired: true}, ignored: "action_required_at = now()", columns: "needs_review_at = now()"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wire := &idempotencytest.Wire{}
			f := newWaitingFixture(t, 1, wire.Configure)
			req := f.putChanged(&threeSteps{}, released, time.Hour, test.ignored)
			test.known.AccountID, test.known.ID = req.AccountID, keyID(req)
			waited := make(chan bool, 1)
			go func() { waited <- f.engine.AwaitChange(t.Context(), test.known) }()
			f.requireWaiting(1)
			wire.Reset()
			require.Eventually(t, func() bool { return wire.Count("AS awaited") > 1 }, waitFor, tick)
			require.Empty(t, waited)
			f.update(req, test.columns)
			require.True(t, <-waited)
		})
	}
}

func TestPoll_conditions(t *testing.T) {
	t.Parallel()
	const old = time.Hour
	f := newFixture(t)
	all, readers := []string{"turn", "status", "end"}, []string{"status", "end"}
	for name, test := range map[string]struct {
		state  given
		ago    time.Duration // since the last run
		update string
		wakes  []string
	}{
		"finished":                  {state: finished, wakes: all},
		"leased":                    {state: leased, ago: old},
		"lease expired":             {state: expired, ago: old, wakes: []string{"turn"}},
		"released":                  {state: released, ago: old, wakes: []string{"turn"}},
		"leased by a clock ahead":   {state: given{Point: paid, Leased: true, LeaseAge: -old}, update: "last_run_at = locked_at", wakes: []string{"turn"}},
		"released by a recent run":  {state: released},
		"needs review":              {state: released, ago: old, update: "needs_review_at = now()", wakes: all},
		"needs review, leased":      {state: leased, ago: old, update: "needs_review_at = now()", wakes: readers},
		"action required":           {state: released, ago: old, update: "action_required_at = now()", wakes: []string{"turn", "status"}},
		"action required, just now": {state: released, update: "action_required_at = now()", wakes: []string{"status"}},
	} {
		t.Run(name, func(t *testing.T) {
			req := f.putChanged(&threeSteps{}, test.state, test.ago, test.update)
			for _, change := range idempotency.AwaitedChanges {
				wakes, err := f.engine.PollWakes(t.Context(), req.AccountID, keyID(req), change)
				require.NoError(t, err)
				require.Equal(t, slices.Contains(test.wakes, string(change)), wakes, change)
			}
			wakes, err := f.engine.PollWakes(t.Context(), uuid.New(), keyID(req), "end")
			require.NoError(t, err)
			require.False(t, wakes, "another account's key")
		})
	}
}
