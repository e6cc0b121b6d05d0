package idempotency

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestWaiters_conditions(t *testing.T) {
	t.Parallel()
	e := &Engine{config: Config{LockTimeout: time.Minute}}
	const old = time.Hour
	now := time.Now()
	waiting := StoredKey{ActionRequired: true}
	for _, test := range []struct {
		name                            string
		key                             StoredKey
		turn, change, changeAfterAction bool
	}{
		{"finished", StoredKey{Point: Finished}, true, true, true},
		{"leased", StoredKey{Leased: true, Idle: old}, false, false, false},
		{"released", StoredKey{Idle: old}, true, false, false},
		{"released by a recent run", StoredKey{}, false, false, false},
		{"released by a clock ahead", StoredKey{Idle: -old}, true, false, false},
		{"needs review", StoredKey{Idle: old, NeedsReviewAt: &now}, true, true, true},
		{"needs review, leased", StoredKey{Leased: true, Idle: old, NeedsReviewAt: &now}, false, true, true},
		{"action required", StoredKey{Idle: old, ActionRequired: true}, true, true, false},
		{"action required, just now", StoredKey{ActionRequired: true}, false, true, false},
	} {
		require.Equal(t, test.turn, e.hasTurn(test.key), test.name)
		require.Equal(t, test.change, StoredKey{}.hasChanged(test.key), test.name)
		require.Equal(t, test.changeAfterAction, waiting.hasChanged(test.key), test.name)
	}
}

// fakeKeys are read instead of the database.
type fakeKeys struct {
	mu    sync.Mutex
	keys  map[uuid.UUID]StoredKey
	err   error
	reads [][]uuid.UUID
}

func (f *fakeKeys) read(_ context.Context, _, ids []uuid.UUID) (map[uuid.UUID]StoredKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads = append(f.reads, ids)
	return f.keys, f.err
}

func (f *fakeKeys) set(err error, finished ...uuid.UUID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys, f.err = map[uuid.UUID]StoredKey{}, err
	for _, id := range finished {
		f.keys[id] = StoredKey{Point: Finished}
	}
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

func newTestWaiters(t *testing.T, capacity int) (*waiters, *fakeKeys, func(context.Context, uuid.UUID) <-chan waitResult) {
	t.Helper()
	f := &fakeKeys{}
	w := newWaiters(capacity, f.read)
	t.Cleanup(w.drain) // or a failed test would also report the poller's goroutine
	return w, f, func(ctx context.Context, id uuid.UUID) <-chan waitResult {
		done := make(chan waitResult, 1)
		go func() {
			begun := time.Now()
			waited := w.wait(ctx, uuid.Nil, id, func(key StoredKey) bool { return key.Point == Finished })
			done <- waitResult{waited, time.Since(begun)}
		}()
		synctest.Wait()
		return done
	}
}

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
		id, other := uuid.New(), uuid.New()
		var waiting []<-chan waitResult
		for i := range 500 {
			waiting = append(waiting, wait(t.Context(), []uuid.UUID{id, other}[i%2]))
		}
		<-time.After(10 * time.Second)
		f.set(errors.New("no connection"))
		<-time.After(10 * time.Second)
		synctest.Wait()
		require.Equal(t, int(20*time.Second/pollInterval), f.count())
		require.ElementsMatch(t, []uuid.UUID{id, other}, f.reads[0])

		f.set(nil, id, other)
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
		id := uuid.New()
		waiting := wait(t.Context(), id)
		w.notify(uuid.New())
		synctest.Wait()
		require.Empty(t, waiting)
		w.notify(id)
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
		first, second := wait(ctx, uuid.New()), wait(t.Context(), uuid.New())
		require.Equal(t, waitResult{}, <-wait(t.Context(), uuid.New()), "full")

		cancel()
		require.True(t, (<-first).waited)
		third := wait(t.Context(), uuid.New())
		require.Empty(t, third, "there is capacity again")

		w.drain()
		require.Equal(t, waitResult{}, <-second)
		require.Equal(t, waitResult{}, <-third)
		require.Equal(t, waitResult{}, <-wait(t.Context(), uuid.New()), "drained")
		synctest.Wait()
		require.True(t, w.isEmpty())
		require.Zero(t, f.count())
	})
}
