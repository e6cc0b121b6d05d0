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
	return KeyStatus{Status: status, OrderID: orderOf(status)}, waited, nil
}

// orderOf finds the order that a key's request is about.
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
