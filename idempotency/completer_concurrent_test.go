package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

// Completers and clients that run the same keys finish each of them once.
func TestCompleter_concurrent(t *testing.T) {
	t.Parallel()
	const keys, completers = 40, 5
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t, connections(8)), op)
	f.config.Concurrency = 3
	var completed atomic.Int64
	var all sync.WaitGroup
	var requests []idempotency.Request
	for i := range keys {
		requests = append(requests, f.putAbandoned(op, []given{expired, {Point: reserved}}[i%2], 2*grace))
	}
	for range completers {
		all.Go(func() {
			result, err := f.completer().RunOnce(t.Context())
			if err != nil || result.Failed > 0 {
				t.Error(result, err)
			}
			completed.Add(int64(result.Completed))
		})
	}
	for _, req := range requests {
		all.Go(func() {
			result, err := f.do(req, op)
			if err != nil && !errors.Is(err, idempotency.ErrInProgress) {
				t.Error(err)
			}
			if err == nil && !result.Replayed {
				completed.Add(1)
			}
		})
	}
	all.Wait()
	for _, req := range requests {
		require.True(t, f.mustDo(req, op).Replayed)
		require.Subset(t, onceEach, f.effects(req))
	}
	require.EqualValues(t, keys, completed.Load(), "each key was finished by one run")
	require.EqualValues(t, keys/2*(1+2), op.calls.Load())
	f.requireIdle()
}

func TestCompleter_changedSinceListed(t *testing.T) {
	t.Parallel()
	var change func()
	op := &threeSteps{}
	first := operation{name: "first", steps: (&threeSteps{pay: func(context.Context, *idempotency.Run) error {
		change()
		return nil
	}}).Steps}
	f := newCompleterFixture(newFixture(t), op, first)
	for name, test := range map[string]func(req idempotency.Request){
		"finished by a client": func(req idempotency.Request) { f.mustDo(req, op) },
		"tried by a client": func(req idempotency.Request) {
			_, err := f.do(req, failingToPay())
			require.ErrorIs(t, err, errNoResponse)
		},
		"leased by a client":         func(req idempotency.Request) { f.update(req, "locked_at = now()") },
		"tried by another completer": func(req idempotency.Request) { f.update(req, "updated_at = now()") },
		"reaped": func(req idempotency.Request) {
			_, err := f.pool.Exec(t.Context(), "DELETE FROM idempotency_keys WHERE id = $1", keyID(req))
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := f.putAbandoned(op, released, 2*grace)
			var left string
			change = func() {
				test(changed)
				left = f.row(changed)
			}
			f.putAbandoned(first, released, 3*grace)
			require.Equal(t, idempotency.CompleterResult{Completed: 1, Skipped: 1}, f.pass())
			require.Equal(t, left, f.row(changed))
		})
	}
}

func TestCompleter_rowLocked(t *testing.T) {
	t.Parallel()
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t, sessionSetting("lock_timeout", "50")), op)
	locked := f.putAbandoned(op, released, 3*grace)
	free := f.putAbandoned(op, released, 2*grace)
	before := f.row(locked)
	unlock := f.otherTransaction("SELECT FROM idempotency_keys WHERE idempotency_key = $1 FOR NO KEY UPDATE", string(locked.Key))
	require.Equal(t, idempotency.CompleterResult{Completed: 1, Skipped: 1}, f.pass())
	require.Equal(t, before, f.row(locked))
	require.Equal(t, "finished", f.state(free).Point)
	unlock()
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass())
}

func TestCompleter_cancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	op := &threeSteps{reserve: func(context.Context, *idempotency.Run) error {
		cancel()
		return nil
	}}
	f := newCompleterFixture(newFixture(t), op)
	for range 10 {
		f.putAbandoned(op, given{Point: reserved}, 2*grace)
	}
	result, err := f.completer().RunOnce(ctx)
	require.NoError(t, err)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, result)
	require.Equal(t, 1, f.countKeys("recovery_point = 'finished'"))

	result, err = f.completer().RunOnce(ctx)
	require.NoError(t, err)
	require.Zero(t, result)
	require.Zero(t, f.log.count("level=ERROR"))
}
