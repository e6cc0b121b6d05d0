package idempotency

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	pollInterval = 200 * time.Millisecond

	// takeoverPause is the time from the last run of a key until a waiter may take the key over.
	// Otherwise waiters would call a failing provider without a pause.
	takeoverPause = time.Second
)

// awaited is a change of a key for which a request waits.
type awaited struct {
	AccountID, ID uuid.UUID
	Change        string
}

const (
	awaitTurn   = "turn"   // the key is finished or can be taken over
	awaitAction = "action" // the key is finished or requires an action
	awaitEnd    = "end"    // the key is finished
)

var changedSQL = `
SELECT awaited.account_id, awaited.id, awaited.change
  FROM idempotency_keys AS k
  JOIN unnest($1::uuid[], $2::uuid[], $3::text[]) AS awaited (account_id, id, change)
    ON awaited.account_id = k.account_id AND awaited.id = k.id
 WHERE k.finished_at IS NOT NULL
    OR awaited.change = 'action' AND k.action_required_at IS NOT NULL
    OR (
        awaited.change = 'turn'
        AND ` + notWithin("last_run_at", "$5::interval", "$4") + `
        AND ` + notLeased("$4") + `
    )`

// changed returns the changes that have happened.
func (s *store) changed(ctx context.Context, keys map[awaited]bool) ([]awaited, error) {
	var accountIDs, ids []uuid.UUID
	var changes []string
	for key := range keys {
		accountIDs, ids, changes = append(accountIDs, key.AccountID), append(ids, key.ID), append(changes, key.Change)
	}
	return collect(ctx, s, pgx.RowToStructByPos[awaited], changedSQL, accountIDs, ids, changes, s.lockTimeout, takeoverPause)
}

// waiters wakes the requests of this process that wait for a key, without a connection (R6,
// nothing held during a call): one goroutine polls all awaited keys. No wake-up is lost, because
// a finished key stays finished, and a released one stays released until it is taken over.
type waiters struct {
	capacity int
	read     readChanged
	logger   *slog.Logger
	running  context.Context // ends when the waiters are drained
	drain    context.CancelFunc

	mu      sync.Mutex
	waiting map[*waiter]struct{}
	polling bool
}

type waiter struct {
	awaited

	wake chan struct{} // closed to wake it
}

type readChanged func(ctx context.Context, keys map[awaited]bool) ([]awaited, error)

func newWaiters(capacity int, read readChanged, logger *slog.Logger) *waiters {
	running, drain := context.WithCancel(context.Background())
	return &waiters{capacity: capacity, read: read, logger: logger, running: running, drain: drain, waiting: map[*waiter]struct{}{}}
}

func (w *waiters) wait(ctx context.Context, key awaited) bool {
	self := &waiter{key, make(chan struct{})}
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
	w.wake(func(key awaited) bool { return key.ID == keyID })
}

func (w *waiters) wake(changed func(awaited) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiter := range w.waiting {
		if changed(waiter.awaited) {
			close(waiter.wake)
			delete(w.waiting, waiter)
		}
	}
}

// poll reads which awaited changes have happened, in each interval until none is awaited.
func (w *waiters) poll() {
	for failing := false; ; {
		select {
		case <-time.After(pollInterval):
		case <-w.running.Done():
		}
		keys := w.awaited()
		if len(keys) == 0 {
			return
		}
		changed, err := w.read(w.running, keys)
		if err != nil && !failing && w.running.Err() == nil { // once per outage
			w.logger.Warn("awaited keys cannot be read, so requests wait longer", "keys", len(keys), "error", err)
		}
		failing = err != nil
		for _, key := range changed {
			keys[key] = true
		}
		w.wake(func(key awaited) bool { return keys[key] })
	}
}

// awaited returns the awaited changes, with false because none has happened. Without any, the
// polling ends.
func (w *waiters) awaited() map[awaited]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := map[awaited]bool{}
	for waiter := range w.waiting {
		keys[waiter.awaited] = false
	}
	if w.running.Err() != nil {
		clear(keys)
	}
	w.polling = len(keys) > 0
	return keys
}
