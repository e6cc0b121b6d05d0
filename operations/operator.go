package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
)

// OperatorAction is for the audit record, which is written before the action.
type OperatorAction struct {
	Actor  string
	Reason string
}

// Retry resumes an unfinished key. The completer attempts it again, too.
func (s *Service) Retry(ctx context.Context, accountID, keyID uuid.UUID, action OperatorAction) (idempotency.Result, error) {
	_, _, err := s.unfinished(ctx, accountID, keyID)
	if err == nil {
		err = AuditAction(ctx, s.pool, accountID, keyID, "key.retry", action)
	}
	if err == nil {
		err = s.engine.Requeue(ctx, accountID, keyID, s.Operations())
	}
	if err != nil {
		return idempotency.Result{KeyID: keyID}, err
	}
	return s.Resume(ctx, accountID, keyID)
}

// Resolve ends an unfinished key. The operator does not choose the response, because
// [Registration.Resolve] fails only what can no longer succeed (R23).
func (s *Service) Resolve(ctx context.Context, accountID, keyID uuid.UUID, action OperatorAction) (idempotency.Result, error) {
	key, registered, err := s.unfinished(ctx, accountID, keyID)
	if err == nil && registered.Resolve == nil {
		err = ErrNotResolvable
	}
	if err == nil {
		err = AuditAction(ctx, s.pool, accountID, keyID, "key.resolve", action)
	}
	if err != nil {
		return idempotency.Result{KeyID: keyID}, err
	}
	return s.engine.Resume(ctx, accountID, keyID, []idempotency.Operation{registered.Resolve(key)})
}

// unfinished returns a key that an operator can change now, with its operation.
func (s *Service) unfinished(ctx context.Context, accountID, keyID uuid.UUID) (idempotency.StoredKey, Registration, error) {
	key, err := s.engine.Key(ctx, accountID, keyID)
	switch {
	case errors.Is(err, idempotency.ErrNotFound), err == nil && key.FinishedAt != nil:
		return key, Registration{}, ErrNoUnfinishedKey
	case err != nil:
		return key, Registration{}, err
	case key.Leased:
		return key, Registration{}, idempotency.ErrInProgress
	}
	registered, known := s.find(key)
	if known {
		_, known = registered.Operation.Steps(&idempotency.Run{}).At[key.Point]
	}
	if !known { // only the newer version can end it (R18)
		err = fmt.Errorf("%w: operation %q, recovery point %q", idempotency.ErrNewerVersion, key.Operation, key.Point)
	}
	return key, registered, err
}

// AuditAction writes the audit record of an action on a key.
func AuditAction(ctx context.Context, pool *pgxpool.Pool, accountID, keyID uuid.UUID, name string, action OperatorAction) error {
	_, err := pool.Exec(ctx, insertAuditRecord, uuid.Must(uuid.NewV7()), accountID, name, "idempotency_key", keyID.String(),
		map[string]string{"by": action.Actor, "reason": action.Reason}, nil)
	if err != nil {
		return fmt.Errorf("audit record: %w", postgres.Translate(err))
	}
	return nil
}
