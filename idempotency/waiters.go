package idempotency

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	pollInterval = 200 * time.Millisecond

	// takeoverPause is from the last run to a waiter's takeover, because waiters would
	// otherwise call a failing provider without a pause.
	takeoverPause = time.Second
)

// waiters wakes the requests of this process that wait for a key, without a connection (R6):
// one goroutine polls all awaited keys. No wake-up is lost, because every poll reports a
// finished key, and a released one until it is taken over.
type waiters struct {
	capacity int
	poll     func(ctx context.Context, keys []awaitedKey) (changed []awaitedKey, err error)
	logger   *slog.Logger
	running  context.Context // ends when the waiters are drained
	drain    context.CancelFunc

	mu      sync.Mutex
	waiting map[*waiter]struct{}
	polling bool
}

type waiter struct {
	key     awaitedKey
	changed chan struct{} // closed to wake it
}

type awaitedKey struct {
	AccountID, ID uuid.UUID
	Change        awaitedChange
}

type awaitedChange string

const (
	awaitTurn   awaitedChange = "turn"   // the key can be taken over, or is finished
	awaitStatus awaitedChange = "status" // the key is finished, or needs review or an action
	awaitEnd    awaitedChange = "end"    // the key is finished or needs review
)

func newWaiters(capacity int, poll func(context.Context, []awaitedKey) ([]awaitedKey, error), logger *slog.Logger) *waiters {
	running, drain := context.WithCancel(context.Background())
	return &waiters{capacity: capacity, poll: poll, logger: logger, running: running, drain: drain, waiting: map[*waiter]struct{}{}}
}

// AwaitTurn blocks until [Engine.Do] is worth another call or ctx ends. It returns false
// if too many requests wait or the process stops.
func (e *Engine) AwaitTurn(ctx context.Context, accountID, id uuid.UUID) bool {
	return e.waiters.wait(ctx, awaitedKey{accountID, id, awaitTurn})
}

// AwaitChange is AwaitTurn until the key is finished, needs review or, unless it already
// did, requires an action.
func (e *Engine) AwaitChange(ctx context.Context, known StoredKey) bool {
	change := awaitStatus
	if known.ActionRequired {
		change = awaitEnd
	}
	return e.waiters.wait(ctx, awaitedKey{known.AccountID, known.ID, change})
}

// DrainWaiters wakes all waiters and rejects new ones.
func (e *Engine) DrainWaiters() { e.waiters.drain() }

// Waiters counts the requests that wait.
func (e *Engine) Waiters() int {
	e.waiters.mu.Lock()
	defer e.waiters.mu.Unlock()
	return len(e.waiters.waiting)
}

func (w *waiters) wait(ctx context.Context, key awaitedKey) bool {
	self := &waiter{key, make(chan struct{})}
	if !w.add(self) {
		return false
	}
	defer w.remove(self)
	select {
	case <-self.changed:
		return true
	case <-ctx.Done():
		return true
	case <-w.running.Done():
		return false
	}
}

func (w *waiters) add(waiter *waiter) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) >= w.capacity || w.running.Err() != nil {
		return false
	}
	w.waiting[waiter] = struct{}{}
	if !w.polling {
		w.polling = true
		go w.pollLoop()
	}
	return true
}

func (w *waiters) remove(waiter *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, waiter)
}

func (w *waiters) notify(accountID, id uuid.UUID) {
	w.wake(func(key awaitedKey) bool { return key.AccountID == accountID && key.ID == id })
}

func (w *waiters) wake(changed func(awaitedKey) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiter := range w.waiting {
		if changed(waiter.key) {
			close(waiter.changed)
			delete(w.waiting, waiter)
		}
	}
}

func (w *waiters) pollLoop() {
	failing := false
	for {
		select {
		case <-time.After(pollInterval):
		case <-w.running.Done():
		}
		w.mu.Lock()
		keys := map[awaitedKey]bool{} // whether the key has changed
		for waiter := range w.waiting {
			keys[waiter.key] = false
		}
		polling := len(keys) > 0 && w.running.Err() == nil
		w.polling = polling
		w.mu.Unlock()
		if !polling {
			return
		}
		changed, err := w.poll(w.running, slices.Collect(maps.Keys(keys)))
		if err != nil && !failing && w.running.Err() == nil { // once per outage
			w.logger.Warn("idempotency: poll of awaited keys failed, retrying", "keys", len(keys), "error", err)
		}
		failing = err != nil
		for _, key := range changed {
			keys[key] = true
		}
		w.wake(func(key awaitedKey) bool { return keys[key] })
	}
}
