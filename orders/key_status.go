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
	order, _ := ResourcesOf(status)
	return KeyStatus{Status: status, OrderID: order}, nil
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

// ResourcesOf returns the ids of the order and the refund that a key's request names
// or creates. Either is uuid.Nil if there is none.
func ResourcesOf(key idempotency.Status) (order, refund uuid.UUID) {
	switch key.Operation {
	case createOrder{}.Name():
		return orderID(key.AccountID, key.Key), uuid.Nil
	case createRefund{}.Name():
		order, _ = uuid.Parse(strings.TrimSuffix(strings.TrimPrefix(key.Path, "/v1/orders/"), "/refunds"))
		return order, refundID(key.AccountID, key.Key)
	default:
		return uuid.Nil, uuid.Nil // of a newer version (R18)
	}
}
