package idempotency

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type waitResult struct {
	waited bool
	took   time.Duration
}

func startWait(ctx context.Context, w waiters, changed func() bool) <-chan waitResult {
	done := make(chan waitResult, 1)
	go func() {
		begun := time.Now()
		waited := w.wait(ctx, changed)
		done <- waitResult{waited, time.Since(begun)}
	}()
	synctest.Wait()
	return done
}

// A waiter reads four times per second for two seconds, and then each second.
func TestWaiters_reads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		ctx, cancel := context.WithTimeout(t.Context(), 29500*time.Millisecond)
		defer cancel()
		require.Equal(t, waitResult{true, 29500 * time.Millisecond}, <-startWait(ctx, newWaiters(1), func() bool {
			reads++
			return false
		}))
		require.Equal(t, 8+27, reads)
		require.Equal(t, waitResult{true, 250 * time.Millisecond}, <-startWait(t.Context(), newWaiters(1), func() bool { return true }))
	})
}

func TestWaiters_fullOrDrained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(2)
		wait := func(ctx context.Context) <-chan waitResult { return startWait(ctx, w, func() bool { return false }) }
		ctx, cancel := context.WithCancel(t.Context())
		first, second := wait(ctx), wait(t.Context())
		require.Equal(t, waitResult{}, <-wait(t.Context()), "full")

		cancel()
		require.True(t, (<-first).waited)
		third := wait(t.Context())
		require.Empty(t, third, "there is capacity again")

		w.drain()
		require.Equal(t, waitResult{}, <-second)
		require.Equal(t, waitResult{}, <-third)
		require.Equal(t, waitResult{}, <-wait(t.Context()), "drained")
		require.Empty(t, w.admitted)
	})
}
