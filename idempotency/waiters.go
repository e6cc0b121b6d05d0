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
	// pollInterval is the longest delay after which a waiter learns what another
	// process did: short beside a charge, and five queries a second are no load.
	pollInterval = 200 * time.Millisecond

	// takeoverPause is how long ago the last run of a released key must have begun
	// before waiters wake up to take it over. Without it they would call a failing
	// provider one after the other, as fast as it rejects.
	takeoverPause = time.Second
)

// waiters wakes the requests of this process that wait for a key which another
// run holds. A waiter is a goroutine blocked on a channel and holds neither a
// connection nor a transaction (R6). While there are waiters, one goroutine polls
// all awaited keys in one query. A waiter that wakes up looks the key up itself.
//
// No change can be missed: a finished key stays finished, and each poll reports a
// released key until a run takes it over.
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

// awaitedKey is a key and what its waiters wait for.
type awaitedKey struct {
	accountID, id uuid.UUID
	change        awaitedChange
}

// awaitedChange is what wakes a waiter.
type awaitedChange string

const (
	awaitTurn   awaitedChange = "turn"   // the key can be taken over, or is finished
	awaitStatus awaitedChange = "status" // the key is finished, or needs review or an action
	awaitEnd    awaitedChange = "end"    // the key is finished or needs review
)

// awaited is an entry of waiters.
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
// another call or ctx ends; a loop must check ctx itself. It reports false if it
// did not wait, because too many requests wait already or the process stops.
func (e *Engine) AwaitTurn(ctx context.Context, accountID, id uuid.UUID) bool {
	return e.waiters.wait(ctx, awaitedKey{accountID, id, awaitTurn})
}

// AwaitStatus blocks until the key is finished, needs review or, unless its status is
// known to require one, needs an action, or until ctx ends. It reports false like
// [Engine.AwaitTurn].
func (e *Engine) AwaitStatus(ctx context.Context, known Status) bool {
	change := awaitStatus
	if known.ActionRequired {
		change = awaitEnd
	}
	return e.waiters.wait(ctx, awaitedKey{known.AccountID, known.ID, change})
}

// DrainWaiters wakes all waiters of this process and lets no more wait. A process
// that stops calls it.
func (e *Engine) DrainWaiters() { e.waiters.drain() }

// Waiters returns how many requests of this process wait, for metrics.
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

// wake wakes the waiters of some keys. Those that come later get a new entry.
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

// pollLoop runs while there are waiters.
func (w *waiters) pollLoop() {
	failing := false
	for {
		select {
		case <-time.After(pollInterval):
		case <-w.running.Done():
		}
		keys := w.awaitedKeys()
		if len(keys) == 0 {
			return
		}
		changed, err := w.poll(w.running, keys)
		if err != nil && !failing && w.running.Err() == nil { // each waiter has a deadline of its own
			w.logger.Warn("idempotency: poll of awaited keys failed, retrying", "keys", len(keys), "error", err)
		}
		failing = err != nil
		w.wake(changed)
	}
}

// awaitedKeys returns the keys to poll. When there are none, or the waiters are
// drained, the poller ends.
func (w *waiters) awaitedKeys() []awaitedKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running.Err() != nil || len(w.keys) == 0 {
		w.polling = false
		return nil
	}
	return slices.Collect(maps.Keys(w.keys))
}
