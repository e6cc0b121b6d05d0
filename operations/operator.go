package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations/audit"
)

// Retry resumes an unfinished key now, before the completer does.
func (s *Service) Retry(ctx context.Context, accountID, keyID uuid.UUID, by audit.Operator) (idempotency.Result, error) {
	_, _, err := s.unfinished(ctx, accountID, keyID)
	if err == nil {
		err = audit.WriteKey(ctx, s.Pool, accountID, keyID, "key.retry", by)
	}
	if err != nil {
		return idempotency.Result{KeyID: keyID}, err
	}
	return s.Resume(ctx, accountID, keyID)
}

// Resolve ends an unfinished key. The operator does not choose the response, because
// [Registration.Resolve] fails only what can no longer succeed (R23, cancel first).
func (s *Service) Resolve(ctx context.Context, accountID, keyID uuid.UUID, by audit.Operator) (idempotency.Result, error) {
	_, registered, err := s.unfinished(ctx, accountID, keyID)
	if err == nil && registered.Resolve == nil {
		err = ErrNotResolvable
	}
	if err == nil {
		err = audit.WriteKey(ctx, s.Pool, accountID, keyID, "key.resolve", by)
	}
	if err != nil {
		return idempotency.Result{KeyID: keyID}, err
	}
	return s.Engine.Resume(ctx, accountID, keyID, []idempotency.Operation{registered.Resolve})
}

// unfinished returns a key that an operator can change now, with its operation.
func (s *Service) unfinished(ctx context.Context, accountID, keyID uuid.UUID) (idempotency.StoredKey, Registration, error) {
	key, err := s.Engine.Key(ctx, accountID, keyID)
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
	if !known { // Only the newer version can end it (R18, newer versions).
		err = fmt.Errorf("%w: operation %q, recovery point %q", idempotency.ErrNewerVersion, key.Operation, key.Point)
	}
	return key, registered, err
}
