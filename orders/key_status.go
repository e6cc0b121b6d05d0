package orders

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

// KeyStatus is the status of a client's request.
type KeyStatus struct {
	idempotency.Status
	OrderID uuid.UUID // of the order that the request names or creates; uuid.Nil if there is none
}

// KeyStatus returns the status of the account's key, or [idempotency.ErrNotFound].
func (s *Service) KeyStatus(ctx context.Context, accountID uuid.UUID, key idempotency.Key) (KeyStatus, error) {
	status, err := s.engine.Status(ctx, accountID, idempotency.KeyID(accountID, key))
	if err != nil {
		return KeyStatus{}, err
	}
	return KeyStatus{Status: status, OrderID: orderOf(status)}, nil
}

// AwaitTurn blocks while another run holds the key, see [idempotency.Engine.AwaitTurn].
func (s *Service) AwaitTurn(ctx context.Context, accountID, keyID uuid.UUID) bool {
	return s.engine.AwaitTurn(ctx, accountID, keyID)
}

// AwaitKeyStatus blocks until the key is finished or needs review, see
// [idempotency.Engine.AwaitStatus].
func (s *Service) AwaitKeyStatus(ctx context.Context, accountID uuid.UUID, key idempotency.Key) bool {
	return s.engine.AwaitStatus(ctx, accountID, idempotency.KeyID(accountID, key))
}

// orderOf returns the order that a key's request names or creates.
func orderOf(key idempotency.Status) uuid.UUID {
	switch key.Operation {
	case createOrder{}.Name():
		return orderID(key.AccountID, key.Key)
	case createRefund{}.Name():
		id, _ := uuid.Parse(strings.TrimSuffix(strings.TrimPrefix(key.Path, "/v1/orders/"), "/refunds"))
		return id
	default:
		return uuid.Nil // of a newer version (R18)
	}
}
