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
	// pollInterval bounds how late a waiter notices a change by another process. Five
	// queries a second are no load.
	pollInterval = 200 * time.Millisecond

	// takeoverPause is the minimum age of the last run before waiters take a released
	// key over. Without it they would call a failing provider without a pause.
	takeoverPause = time.Second
)

// waiters wakes the requests of this process that wait for a key held by another run.
// A waiter is a goroutine blocked on a channel, without a connection (R6). One
// goroutine polls all awaited keys in one query; a waiter that wakes up looks its key
// up itself. No wake-up is lost: every poll reports a finished key, and a released
// one until it is taken over.
type waiters struct {
	capacity int
	poll     func(ctx context.Context, keys []awaitedKey) (changed []awaitedKey, err error)
	logger   *slog.Logger
	running  context.Context // ends when the waiters are drained
	drain    context.CancelFunc

	mu      sync.Mutex
	keys    map[awaitedKey]*awaited
	count   int  // of waiters
	polling bool // the poller runs
}

type awaitedKey struct {
	accountID, id uuid.UUID
	change        awaitedChange
}

type awaitedChange string

const (
	awaitTurn   awaitedChange = "turn"   // the key can be taken over, or is finished
	awaitStatus awaitedChange = "status" // the key is finished, or needs review or an action
	awaitEnd    awaitedChange = "end"    // the key is finished or needs review
)

type awaited struct {
	waiters int
	changed chan struct{} // closed to wake them
}

func newWaiters(capacity int, poll func(context.Context, []awaitedKey) ([]awaitedKey, error), logger *slog.Logger) *waiters {
	running, drain := context.WithCancel(context.Background())
	return &waiters{
		capacity: capacity,
		poll:     poll,
		logger:   logger,
		running:  running,
		drain:    drain,
		keys:     map[awaitedKey]*awaited{},
	}
}

// AwaitTurn blocks while another run holds the key, until [Engine.Do] is worth
// another call or ctx ends. It returns false if too many requests wait or the process
// stops.
func (e *Engine) AwaitTurn(ctx context.Context, accountID, id uuid.UUID) bool {
	return e.waiters.wait(ctx, awaitedKey{accountID, id, awaitTurn})
}

// AwaitStatus blocks until the key is finished, needs review or, unless it already
// did, requires an action, or until ctx ends. It returns false like
// [Engine.AwaitTurn].
func (e *Engine) AwaitStatus(ctx context.Context, known Status) bool {
	change := awaitStatus
	if known.ActionRequired {
		change = awaitEnd
	}
	return e.waiters.wait(ctx, awaitedKey{known.AccountID, known.ID, change})
}

// DrainWaiters wakes all waiters and rejects new ones. A process that stops calls it.
func (e *Engine) DrainWaiters() { e.waiters.drain() }

// Waiters returns the number of requests that wait in this process.
func (e *Engine) Waiters() int {
	e.waiters.mu.Lock()
	defer e.waiters.mu.Unlock()
	return e.waiters.count
}

func (w *waiters) wait(ctx context.Context, key awaitedKey) bool {
	a := w.subscribe(key)
	if a == nil {
		return false
	}
	defer w.unsubscribe(key, a)
	select {
	case <-a.changed:
		return true
	case <-ctx.Done():
		return true
	case <-w.running.Done():
		return false
	}
}

func (w *waiters) subscribe(key awaitedKey) *awaited {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= w.capacity || w.running.Err() != nil {
		return nil
	}
	a := w.keys[key]
	if a == nil {
		a = &awaited{changed: make(chan struct{})}
		w.keys[key] = a
	}
	a.waiters++
	w.count++
	if !w.polling {
		w.polling = true
		go w.pollLoop()
	}
	return a
}

func (w *waiters) unsubscribe(key awaitedKey, a *awaited) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	if a.waiters--; a.waiters == 0 && w.keys[key] == a {
		delete(w.keys, key)
	}
}

// notify wakes the waiters of a key that a run of this process has finished.
func (w *waiters) notify(accountID, id uuid.UUID) {
	w.wake([]awaitedKey{{accountID, id, awaitTurn}, {accountID, id, awaitStatus}, {accountID, id, awaitEnd}})
}

// wake wakes the waiters of some keys. Later waiters get a new entry.
func (w *waiters) wake(keys []awaitedKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		if a := w.keys[key]; a != nil {
			close(a.changed)
			delete(w.keys, key)
		}
	}
}

// pollLoop polls the awaited keys until there are none.
func (w *waiters) pollLoop() {
	failing := false
	for {
		select {
		case <-time.After(pollInterval):
		case <-w.running.Done():
		}
		w.mu.Lock()
		keys := slices.Collect(maps.Keys(w.keys))
		polling := len(keys) > 0 && w.running.Err() == nil
		w.polling = polling
		w.mu.Unlock()
		if !polling {
			return
		}
		changed, err := w.poll(w.running, keys)
		if err != nil && !failing && w.running.Err() == nil { // logged once per outage; waiters have deadlines of their own
			w.logger.Warn("idempotency: poll of awaited keys failed, retrying", "keys", len(keys), "error", err)
		}
		failing = err != nil
		w.wake(changed)
	}
}
