package idempotency

import (
	"context"

	"github.com/google/uuid"
)

var AwaitedChanges = []awaitedChange{awaitTurn, awaitStatus, awaitEnd}

func (e *Engine) PollWakes(ctx context.Context, accountID, id uuid.UUID, change awaitedChange) (bool, error) {
	changed, err := e.store.poll(ctx, []awaitedKey{{accountID, id, change}})
	return len(changed) == 1, err
}
