package orders

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

// KeyStatus is what became of a client's request so far.
type KeyStatus struct {
	idempotency.Status
	OrderID uuid.UUID // of the order that the request is about; uuid.Nil when there is none
}

// WatchKey returns the status of the account's key as soon as it is finished or
// needs review, or else as it is after wait, and whether it waited as it was
// asked to. A key that does not exist is [idempotency.ErrNotFound].
func (s *Service) WatchKey(ctx context.Context, accountID uuid.UUID, key idempotency.Key, wait time.Duration) (KeyStatus, bool, error) {
	status, waited, err := s.engine.Watch(ctx, accountID, idempotency.KeyID(accountID, key), wait)
	if err != nil {
		return KeyStatus{}, waited, err
	}
	order, _ := ResourcesOf(status)
	return KeyStatus{Status: status, OrderID: order}, waited, nil
}

// ResourcesOf returns the ids of the order and the refund that a key's request is
// about. Either is uuid.Nil if there is none.
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
