package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// fakeKeys are read instead of the database.
type fakeKeys struct {
	mu      sync.Mutex
	changed []awaited
	err     error
	reads   []map[awaited]bool
	log     strings.Builder
}

func (f *fakeKeys) read(_ context.Context, keys map[awaited]bool) ([]awaited, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads = append(f.reads, keys)
	return f.changed, f.err
}

func (f *fakeKeys) set(err error, changed ...awaited) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed, f.err = changed, err
}

func (f *fakeKeys) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.reads)
}

type waitResult struct {
	waited bool
	took   time.Duration
}

func newTestWaiters(t *testing.T, capacity int) (*waiters, *fakeKeys, func(context.Context, awaited) <-chan waitResult) {
	t.Helper()
	f := &fakeKeys{}
	w := newWaiters(capacity, f.read, slog.New(slog.NewTextHandler(&f.log, nil)))
	t.Cleanup(w.drain) // or a failed test would also report the poller's goroutine
	return w, f, func(ctx context.Context, key awaited) <-chan waitResult {
		done := make(chan waitResult, 1)
		go func() {
			begun := time.Now()
			waited := w.wait(ctx, key)
			done <- waitResult{waited, time.Since(begun)}
		}()
		synctest.Wait()
		return done
	}
}

func newAwaited() awaited { return awaited{uuid.New(), uuid.New(), awaitTurn} }

func (w *waiters) isEmpty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) == 0 && !w.polling
}

// The number of reads does not depend on that of waiters, except without any, and a failed one
// is repeated.
func TestWaiters_oneReadPerInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, f, wait := newTestWaiters(t, 500)
		key, other := newAwaited(), newAwaited()
		var waiting []<-chan waitResult
		for i := range 500 {
			waiting = append(waiting, wait(t.Context(), []awaited{key, other}[i%2]))
		}
		<-time.After(10 * time.Second)
		f.set(errors.New("no connection"))
		<-time.After(10 * time.Second)
		synctest.Wait()
		require.Equal(t, int(20*time.Second/pollInterval), f.count())
		require.Equal(t, map[awaited]bool{key: false, other: false}, f.reads[0])
		require.Equal(t, 1, strings.Count(f.log.String(), "no connection"), "one line per outage")

		f.set(nil, key, other)
		for _, done := range waiting {
			got := <-done
			require.True(t, got.waited)
			require.LessOrEqual(t, got.took, 20*time.Second+pollInterval)
		}
		reads := f.count()
		<-time.After(time.Minute)
		require.Equal(t, reads, f.count())
		require.True(t, w.isEmpty())
	})
}

func TestWaiters_notify(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, f, wait := newTestWaiters(t, 10)
		key := newAwaited()
		waiting := wait(t.Context(), key)
		w.notify(uuid.New())
		synctest.Wait()
		require.Empty(t, waiting)
		w.notify(key.ID)
		require.Equal(t, waitResult{true, 0}, <-waiting)
		require.Zero(t, f.count())
		<-time.After(pollInterval)
		synctest.Wait()
		require.True(t, w.isEmpty())
	})
}

func TestWaiters_fullOrDrained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, f, wait := newTestWaiters(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := wait(ctx, newAwaited()), wait(t.Context(), newAwaited())
		require.Equal(t, waitResult{}, <-wait(t.Context(), newAwaited()), "full")

		cancel()
		require.True(t, (<-first).waited)
		third := wait(t.Context(), newAwaited())
		require.Empty(t, third, "there is capacity again")

		w.drain()
		require.Equal(t, waitResult{}, <-second)
		require.Equal(t, waitResult{}, <-third)
		require.Equal(t, waitResult{}, <-wait(t.Context(), newAwaited()), "drained")
		synctest.Wait()
		require.True(t, w.isEmpty())
		require.Zero(t, f.count())
	})
}
