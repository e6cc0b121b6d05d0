package idempotency

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

type fakePoll struct {
	mu      sync.Mutex
	changed []awaitedKey
	err     error
	polls   [][]awaitedKey
}

func (p *fakePoll) poll(_ context.Context, keys []awaitedKey) ([]awaitedKey, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.polls = append(p.polls, keys)
	return p.changed, p.err
}

func (p *fakePoll) set(err error, changed ...awaitedKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed, p.err = changed, err
}

func (p *fakePoll) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.polls)
}

func newTestWaiters(t *testing.T, capacity int) (*waiters, *fakePoll, *bytes.Buffer) {
	t.Helper()
	p, log := &fakePoll{}, &bytes.Buffer{}
	w := newWaiters(capacity, p.poll, slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(w.drain) // or a failed test would also report the poller's goroutine
	return w, p, log
}

func newAwaitedKey(change awaitedChange) awaitedKey {
	return awaitedKey{uuid.New(), uuid.New(), change}
}

type waitResult struct {
	waited bool
	took   time.Duration
}

func (w *waiters) waitAsync(ctx context.Context, key awaitedKey, timeout time.Duration) <-chan waitResult {
	done := make(chan waitResult, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		begun := time.Now()
		waited := w.wait(ctx, key)
		done <- waitResult{waited, time.Since(begun)}
	}()
	synctest.Wait()
	return done
}

func (w *waiters) isEmpty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) == 0 && !w.polling
}

// The number of polls does not depend on that of waiters, except without any.
func TestWaiters_onePollPerInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p, _ := newTestWaiters(t, 500)
		turn := newAwaitedKey(awaitTurn)
		status := awaitedKey{turn.AccountID, turn.ID, awaitStatus}
		var waiting []<-chan waitResult
		for i := range 500 {
			waiting = append(waiting, w.waitAsync(t.Context(), []awaitedKey{turn, status}[i%2], time.Minute))
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		require.Equal(t, int(10*time.Second/pollInterval), p.count())
		require.ElementsMatch(t, []awaitedKey{turn, status}, p.polls[0])

		p.set(nil, turn, status)
		for _, done := range waiting {
			got := <-done
			require.True(t, got.waited)
			require.LessOrEqual(t, got.took, 10*time.Second+pollInterval)
		}
		polls := p.count()
		<-time.After(time.Minute)
		require.Equal(t, polls, p.count())
		require.True(t, w.isEmpty())
	})
}

func TestWaiters_notify(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p, _ := newTestWaiters(t, 10)
		turn := newAwaitedKey(awaitTurn)
		turns := w.waitAsync(t.Context(), turn, time.Minute)
		reader := w.waitAsync(t.Context(), awaitedKey{turn.AccountID, turn.ID, awaitStatus}, time.Minute)
		w.notify(uuid.New(), turn.ID)
		w.notify(turn.AccountID, uuid.New())
		synctest.Wait()
		require.Empty(t, turns)
		w.notify(turn.AccountID, turn.ID)
		require.Equal(t, waitResult{true, 0}, <-turns)
		require.Equal(t, waitResult{true, 0}, <-reader)
		require.Zero(t, p.count())
		<-time.After(pollInterval)
		synctest.Wait()
		require.True(t, w.isEmpty())
	})
}

func TestWaiters_fullOrDrained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p, log := newTestWaiters(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		first := w.waitAsync(ctx, newAwaitedKey(awaitTurn), time.Minute)
		second := w.waitAsync(t.Context(), newAwaitedKey(awaitStatus), time.Minute)
		require.Equal(t, waitResult{}, <-w.waitAsync(t.Context(), newAwaitedKey(awaitTurn), time.Minute), "full")

		cancel()
		require.True(t, (<-first).waited)
		third := w.waitAsync(t.Context(), newAwaitedKey(awaitTurn), time.Minute)
		require.Empty(t, third, "there is capacity again")

		w.drain()
		require.Equal(t, waitResult{}, <-second)
		require.Equal(t, waitResult{}, <-third)
		require.Equal(t, waitResult{}, <-w.waitAsync(t.Context(), newAwaitedKey(awaitTurn), time.Minute), "drained")
		synctest.Wait()
		require.True(t, w.isEmpty())
		require.Zero(t, p.count())
		require.Empty(t, log.String())
	})
}

func TestWaiters_pollFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p, log := newTestWaiters(t, 10)
		key := newAwaitedKey(awaitTurn)
		p.set(errors.New("no connection"))
		long := w.waitAsync(t.Context(), key, time.Minute)
		short := w.waitAsync(t.Context(), key, 5*time.Second)
		require.Equal(t, waitResult{true, 5 * time.Second}, <-short)
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("poll of awaited keys failed")))
		require.Contains(t, log.String(), "no connection")
		p.set(nil)
		<-time.After(2 * pollInterval)
		p.set(errors.New("no connection"))
		<-time.After(time.Second)
		require.Equal(t, 2, bytes.Count(log.Bytes(), []byte("poll of awaited keys failed")), "once per outage")
		p.set(nil, key)
		require.True(t, (<-long).waited)
	})
}
