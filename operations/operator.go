package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/postgres"
)

// Marker is an [idempotency.Operation] whose unfinished keys an operator can end. Mark queues what every later run
// reads before it acts. Such a run must not store a failure while the request can still succeed (R29, durable
// cancel; R23, cancel first).
type Marker interface {
	Mark(tx *idempotency.Tx, key idempotency.StoredKey, operator string)
}

// ErrNotResolvable means that the operation is no [Marker].
var ErrNotResolvable = errors.New("its operation cannot be resolved, only retried")

// Retry resumes an unfinished key now, before the completer does.
func (s *Service) Retry(ctx context.Context, accountID, keyID uuid.UUID, by audit.Operator) (idempotency.Result, error) {
	return s.act(ctx, accountID, keyID, by, "key.retry", false)
}

// Resolve marks an unfinished key as one to end, and then resumes it as a retry does. The operator does not choose
// the response (R29, durable cancel). After an error of the run, later runs read the mark.
func (s *Service) Resolve(ctx context.Context, accountID, keyID uuid.UUID, by audit.Operator) (idempotency.Result, error) {
	return s.act(ctx, accountID, keyID, by, "key.resolve", true)
}

// act commits the audit record of an action, together with the mark if the action ends the key.
func (s *Service) act(ctx context.Context, accountID, keyID uuid.UUID, by audit.Operator, action string, ends bool) (idempotency.Result, error) {
	err := s.Engine.Mark(ctx, accountID, keyID, s.Operations(), func(tx *idempotency.Tx, key idempotency.StoredKey, op idempotency.Operation) error {
		audit.WriteKeyTx(tx, accountID, keyID, action, by)
		marker, ok := op.(Marker)
		switch {
		case ends && !ok:
			return ErrNotResolvable
		case ends:
			marker.Mark(tx, key, by.Actor)
		}
		return nil
	})
	if err == nil {
		return s.Resume(ctx, accountID, keyID)
	}
	if !errors.Is(err, postgres.ErrUnavailable) { // then the COMMIT may have been executed
		err = fmt.Errorf("nothing was changed: %w", err)
	}
	return idempotency.Result{}, err
}
