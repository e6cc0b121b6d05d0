package orders

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
)

// ExpireKey rejects retries of a charged order whose rows are lost (R17): once the provider's
// keys have expired, they would charge again.
func (s *Service) ExpireKey(ctx context.Context, accountID, keyID uuid.UUID, createdAt time.Time) error {
	return s.config.Engine.Expire(ctx, accountID, keyID, createOrder{}.Name(), "/v1/orders", createdAt)
}

// KeyHistory is what a key has created.
type KeyHistory struct {
	Order   *Order                   // or nil
	Refund  *Refund                  // of that order, or nil
	Records []operations.AuditRecord // oldest first
}

// History also works for a reaped key.
func History(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID, key idempotency.Key) (KeyHistory, error) {
	var history KeyHistory
	created := orderID(accountID, key)
	order := created
	switch r, err := findRefund(ctx, pool, accountID, refundID(accountID, key)); {
	case err == nil:
		history.Refund, created, order = &r.Refund, r.ID, r.OrderID
	case !errors.Is(err, operations.ErrNotFound):
		return KeyHistory{}, err
	}
	switch o, err := findOrder(ctx, pool, accountID, order); {
	case err == nil:
		history.Order = &o.Order
	case !errors.Is(err, operations.ErrNotFound):
		return KeyHistory{}, err
	}
	var err error
	history.Records, err = operations.AuditRecords(ctx, pool, accountID, idempotency.KeyID(accountID, key), created)
	return history, err
}
