package idempotency

import (
	"context"
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

// waiters wakes the requests of this process that wait for a key, without a connection (R6,
// nothing held during a call): one goroutine reads all awaited keys. No wake-up is lost, because
// a finished key stays finished, and a released one stays released until it is taken over.
type waiters struct {
	capacity int
	read     readKeys
	running  context.Context // ends when the waiters are drained
	drain    context.CancelFunc

	mu      sync.Mutex
	waiting map[*waiter]struct{}
	polling bool
}

type waiter struct {
	accountID, keyID uuid.UUID
	changed          func(StoredKey) bool
	wake             chan struct{} // closed to wake it
}

type readKeys func(ctx context.Context, accountIDs, ids []uuid.UUID) (map[uuid.UUID]StoredKey, error)

func newWaiters(capacity int, read readKeys) *waiters {
	running, drain := context.WithCancel(context.Background())
	return &waiters{capacity: capacity, read: read, running: running, drain: drain, waiting: map[*waiter]struct{}{}}
}

func (w *waiters) wait(ctx context.Context, accountID, keyID uuid.UUID, changed func(StoredKey) bool) bool {
	self := &waiter{accountID, keyID, changed, make(chan struct{})}
	if !w.add(self) {
		return false
	}
	defer w.remove(self)
	select {
	case <-self.wake:
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
		go w.poll()
	}
	return true
}

func (w *waiters) remove(waiter *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, waiter)
}

// notify wakes the waiters of a key that a run of this process has finished.
func (w *waiters) notify(keyID uuid.UUID) {
	w.wake(func(waiter *waiter) bool { return waiter.keyID == keyID })
}

func (w *waiters) wake(due func(*waiter) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiter := range w.waiting {
		if due(waiter) {
			close(waiter.wake)
			delete(w.waiting, waiter)
		}
	}
}

// poll reads the awaited keys in each interval until there are none.
func (w *waiters) poll() {
	for {
		select {
		case <-time.After(pollInterval):
		case <-w.running.Done():
		}
		accountIDs, ids := w.awaited()
		if len(ids) == 0 {
			return
		}
		keys, _ := w.read(w.running, accountIDs, ids) // a failed one is repeated
		w.wake(func(waiter *waiter) bool {
			key, found := keys[waiter.keyID]
			return found && waiter.changed(key)
		})
	}
}

// awaited returns each awaited key once, with its account. Without any, it ends the polling.
func (w *waiters) awaited() (accountIDs, ids []uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	accountOf := map[uuid.UUID]uuid.UUID{}
	for waiter := range w.waiting {
		accountOf[waiter.keyID] = waiter.accountID
	}
	if w.running.Err() != nil {
		clear(accountOf)
	}
	for id, accountID := range accountOf {
		accountIDs, ids = append(accountIDs, accountID), append(ids, id)
	}
	w.polling = len(ids) > 0
	return accountIDs, ids
}
