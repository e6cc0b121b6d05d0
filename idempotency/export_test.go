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

// AwaitedChanges are what waiters may await.
var AwaitedChanges = []awaitedChange{awaitTurn, awaitStatus, awaitEnd}

// PollWakes reports whether a poll wakes the waiters of a change of a key.
func (e *Engine) PollWakes(ctx context.Context, accountID, id uuid.UUID, change awaitedChange) (bool, error) {
	changed, err := e.store.poll(ctx, []awaitedKey{{accountID, id, change}})
	return len(changed) == 1, err
}
