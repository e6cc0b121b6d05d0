package idempotency

import (
	"context"
	"time"

	"github.com/google/uuid"
)

const (
	// A waiter reads its key's row each shortPause for the first shortPauses, because most runs take
	// less than two seconds, and then each longPause.
	shortPause  = 250 * time.Millisecond
	shortPauses = 8
	longPause   = time.Second

	// takeoverPause is the time from the beginning of a key's last run until a waiter may take the key over.
	// Otherwise waiters would call a provider that fails at once without a pause.
	takeoverPause = time.Second
)

// waiters bounds the requests that wait for a key, and ends their waits together. Between two reads a
// waiter holds no connection (R6, nothing held during a wait). A release cannot be missed, because it
// is in the row.
type waiters struct {
	admitted chan struct{} // its capacity is the maximum
	running  context.Context
	drain    context.CancelFunc
}

func newWaiters(capacity int) waiters {
	running, drain := context.WithCancel(context.Background())
	return waiters{make(chan struct{}, capacity), running, drain}
}

func (w waiters) wait(ctx context.Context, changed func() bool) bool {
	select {
	case w.admitted <- struct{}{}:
		defer func() { <-w.admitted }()
	default:
		return false
	}
	for reads := 0; ; reads++ {
		pause := shortPause
		if reads >= shortPauses {
			pause = longPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return true
		case <-w.running.Done():
			return false
		}
		if changed() {
			return true
		}
	}
}

// await waits until a key's row has changed. An error ends the wait too, because the caller reads the
// row next, and reports it.
func (e *Engine) await(ctx context.Context, accountID, id uuid.UUID, changed func(StoredKey) bool) bool {
	return e.waiters.wait(ctx, func() bool {
		key, err := e.store.find(context.WithoutCancel(ctx), accountID, id) // pgx closes a connection whose query is cancelled
		return err != nil || changed(key.StoredKey)
	})
}

// AwaitTurn blocks until [Engine.Do] can run or replay the key, or ctx ends. In both cases it returns
// true, because Do then returns the key's state. It returns false if too many requests wait or the
// process stops.
func (e *Engine) AwaitTurn(ctx context.Context, accountID, id uuid.UUID) bool {
	return e.await(ctx, accountID, id, func(k StoredKey) bool {
		paused := k.Idle > takeoverPause || k.Idle < -e.config.LeaseDuration // of a clock that ran ahead
		return k.Point == Finished || !k.Leased && paused
	})
}

// AwaitChange blocks like AwaitTurn, but until the key is finished or, unless it
// already did, requires an action.
func (e *Engine) AwaitChange(ctx context.Context, known StoredKey) bool {
	return e.await(ctx, known.AccountID, known.ID, func(k StoredKey) bool {
		return k.Point == Finished || k.ActionRequired && !known.ActionRequired
	})
}

// DrainWaiters ends all waits and rejects new ones.
func (e *Engine) DrainWaiters() { e.waiters.drain() }

// Waiters counts the requests that wait.
func (e *Engine) Waiters() int { return len(e.waiters.admitted) }
