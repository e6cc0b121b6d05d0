package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// Five completers at once, and every client at the same time: each step of each
// key runs once.
func TestCompleter_manyAtOnce(t *testing.T) {
	t.Parallel()
	const keys, completers = 40, 5
	op := &threeSteps{}
	b := newBench(t, connections(8))
	var requests []idempotency.Request
	var calls int64
	for i := range keys {
		state := []idempotencytest.State{{}, {Point: reserved}, {Point: paid}, {Point: paid, Leased: true, LeaseAge: 2 * lockTimeout}}[i%4]
		requests = append(requests, b.abandon(op, state, 2*grace))
		calls += []int64{2, 2, 1, 1}[i%4]
	}
	n := newNight(b, op)
	n.config.Concurrency = 3

	var all sync.WaitGroup
	passes, answers := make([]idempotency.Pass, completers), make([]idempotency.Result, keys)
	for i := range completers {
		all.Go(func() {
			var err error
			if passes[i], err = n.completer().RunOnce(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	for i, req := range requests {
		all.Go(func() {
			var err error
			if answers[i], err = b.do(req, op); err != nil && !errors.Is(err, idempotency.ErrInProgress) {
				t.Error(err)
			}
		})
	}
	all.Wait()

	completed := 0
	for _, pass := range passes {
		require.Zero(t, pass.Failed+pass.NeedsReview)
		completed += pass.Completed
	}
	for i, answer := range answers {
		if answer.Response.Status != 0 && !answer.Replayed {
			completed++
		}
		last, err := b.do(requests[i], op)
		require.NoError(t, err)
		require.True(t, last.Replayed)
		if answer.Response.Status != 0 {
			require.Equal(t, string(last.Response.Body), string(answer.Response.Body))
		}
		for name, times := range b.effects(requests[i]) {
			require.Equal(t, 1, times, name)
		}
	}
	require.Equal(t, keys, completed, "each key was finished by one of them")
	require.Equal(t, calls, op.calls.Load())
	require.Zero(t, newNight(b, op).pass())
	b.requireIdle()
}

// A key that somebody finished after it was taken is not the completer's work.
func TestCompleter_somebodyWasFaster(t *testing.T) {
	t.Parallel()
	for name, faster := range map[string]func(*night, idempotency.Request){
		"and is not done yet": func(n *night, req idempotency.Request) { n.set(req, "locked_at = now()") },
		"and is done": func(n *night, req idempotency.Request) {
			_, err := n.do(req, n.operations["three_steps"])
			require.NoError(n.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := &threeSteps{}
			n := newNight(newBench(t, connections(2)), op)
			req := n.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
			first := true
			completer, err := idempotency.NewCompleter(n.engine, func(string) (idempotency.Operation, bool) {
				if first {
					first = false
					faster(n, req)
				}
				return op, true
			}, n.config)
			require.NoError(t, err)
			pass, err := completer.RunOnce(t.Context())
			require.NoError(t, err)
			require.Equal(t, idempotency.Pass{Busy: 1}, pass)
			require.LessOrEqual(t, op.calls.Load(), int64(1))
		})
	}
}

// A row that another session has locked is passed over, not waited for.
func TestCompleter_rowLocked(t *testing.T) {
	t.Parallel()
	op := &threeSteps{}
	n := newNight(newBench(t), op)
	locked := n.abandon(op, idempotencytest.State{Point: paid}, 3*grace)
	free := n.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
	before := n.row(locked)
	unlock := n.other("SELECT FROM idempotency_keys WHERE idempotency_key = $1 FOR NO KEY UPDATE", string(locked.Key))
	require.Equal(t, idempotency.Pass{Completed: 1}, n.pass())
	require.Equal(t, before, n.row(locked))
	require.Equal(t, "finished", n.state(free).Point)
	unlock()
	require.Equal(t, idempotency.Pass{Completed: 1}, n.pass())
}

// A pass with nothing to do is one query, of an index that holds nothing of what
// is finished.

// A pass that is told to stop finishes what it has in hand.
func TestCompleter_stopped(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	op := &threeSteps{}
	op.reserve = func(context.Context, *idempotency.Run) error {
		stop()
		return nil
	}
	n := newNight(newBench(t), op)
	for range 10 {
		n.abandon(op, idempotencytest.State{Point: reserved}, 2*grace)
	}
	pass, err := n.completer().RunOnce(ctx)
	require.NoError(t, err)
	// One was being worked on, and perhaps another one was taken meanwhile.
	require.Contains(t, []int{1, 2}, pass.Completed)
	require.Equal(t, idempotency.Pass{Completed: pass.Completed}, pass)
	require.Equal(t, pass.Completed, n.keys("recovery_point = 'finished'"))
	require.Equal(t, pass.Completed, n.keys("completer_attempt = 1"))

	pass, err = n.completer().RunOnce(ctx)
	require.NoError(t, err)
	require.Zero(t, pass)
	require.Zero(t, n.log.count("level=ERROR"))
}
