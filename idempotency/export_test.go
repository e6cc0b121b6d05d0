package idempotency

import (
	"context"

	"github.com/google/uuid"
)

// Waiting returns how many requests wait in this process.
func (e *Engine) Waiting() int {
	e.waiters.mu.Lock()
	defer e.waiters.mu.Unlock()
	return e.waiters.count
}

// PollWakes reports whether a poll wakes the waiters of a key: those that read its
// status, or those that would take it over.
func (e *Engine) PollWakes(ctx context.Context, accountID, id uuid.UUID, reads bool) (bool, error) {
	changed, err := e.store.poll(ctx, []awaitedKey{{accountID, id, reads}})
	return len(changed) == 1, err
}
