package idempotency

import (
	"context"

	"github.com/google/uuid"
)

// AwaitedChanges lists the changes.
var AwaitedChanges = []awaitedChange{awaitTurn, awaitStatus, awaitEnd}

// PollWakes reports whether a poll wakes the waiters for a change of a key.
func (e *Engine) PollWakes(ctx context.Context, accountID, id uuid.UUID, change awaitedChange) (bool, error) {
	changed, err := e.store.poll(ctx, []awaitedKey{{accountID, id, change}})
	return len(changed) == 1, err
}
