package refunds

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
)

// lockOrderTx returns an order with the sum of its refunds. Under READ COMMITTED, only a separate
// statement sees what the lock's previous holder has committed.
func lockOrderTx(ctx context.Context, tx *idempotency.Tx, accountID, id, refundID uuid.UUID) (o orders.Order, reserved int64, err error) {
	err = tx.QueryRow(ctx, `
SELECT status,
       amount,
       currency
  FROM orders
 WHERE account_id = $1
   AND id = $2
   FOR NO KEY UPDATE`, []any{accountID, id}, &o.Status, &o.Amount, &o.Currency)
	if errors.Is(err, pgx.ErrNoRows) {
		return o, 0, httpjson.ErrNotFound
	}
	if err != nil {
		return o, 0, err
	}
	err = tx.QueryRow(ctx, `
SELECT coalesce(sum(amount), 0)::bigint
  FROM refunds
 WHERE account_id = $1
   AND order_id = $2
   AND id <> $3
   AND status NOT IN ('failed', 'canceled')`, []any{accountID, id, refundID}, &reserved)
	return o, reserved, err
}

const selectRefund = `
SELECT r.id,
       r.order_id,
       r.amount,
       r.currency,
       r.reason,
       r.status,
       r.provider_refund_id,
       r.created_at,
       r.source,
       r.failure_reason,
       o.payment_intent_id,
       r.provider_key_number,
       r.provider_sent_at,
       r.provider_failed_at,
       r.cancel_requested_at IS NOT NULL AS cancel_requested
  FROM refunds AS r
  JOIN orders AS o
    ON o.account_id = r.account_id
   AND o.id = r.order_id`

func (s *Service) find(ctx context.Context, accountID, id uuid.UUID) (row, error) {
	return httpjson.Get(ctx, s.Pool, pgx.RowToStructByName[row], selectRefund+`
 WHERE r.account_id = $1
   AND r.id = $2`, accountID, id)
}

// Find implements [idempotency.Finder] with an id, or the provider's id. A refund without a key, such as the
// dashboard's, belongs to the history of its order's key.
func (op createRefund) Find(ctx context.Context, accountIDs []uuid.UUID, name string) ([]idempotency.Found, error) {
	id, _ := uuid.Parse(name) // otherwise uuid.Nil, which no refund has
	return postgres.Collect(ctx, op.service.Pool, "find refunds", pgx.RowToStructByPos[idempotency.Found], `
SELECT r.account_id,
       coalesce(r.idempotency_key, o.idempotency_key),
       'refund ' || r.id || ', ' || r.status
  FROM refunds AS r
  JOIN orders AS o
    ON o.account_id = r.account_id
   AND o.id = r.order_id
 WHERE r.account_id = ANY($1)
   AND (r.id = $2 OR r.provider_refund_id = $3)`, accountIDs, id, name)
}

// Get returns the refund of an order, or [httpjson.ErrNotFound].
func (s *Service) Get(ctx context.Context, accountID, orderID, id uuid.UUID) (Refund, error) {
	r, err := s.find(ctx, accountID, id)
	if err == nil && r.OrderID != orderID {
		err = httpjson.ErrNotFound
	}
	return r.Refund, err
}

// List returns the refunds of an order, the newest first.
func (s *Service) List(ctx context.Context, accountID, orderID uuid.UUID, page httpjson.Page) ([]Refund, error) {
	if _, err := s.Orders.Get(ctx, accountID, orderID); err != nil {
		return nil, err
	}
	after, err := page.Cursor(func(id uuid.UUID) (httpjson.Timestamp, error) {
		r, err := s.Get(ctx, accountID, orderID, id)
		return r.CreatedAt, err
	})
	if err != nil {
		return nil, err
	}
	scan := func(from pgx.CollectableRow) (Refund, error) {
		r, err := pgx.RowToStructByName[row](from)
		return r.Refund, err
	}
	return postgres.Collect(ctx, s.Pool, "list refunds", scan, selectRefund+`
 WHERE r.account_id = $1
   AND r.order_id = $2
   AND (r.created_at, r.id) < ($3, $4)
 ORDER BY r.created_at DESC, r.id DESC
 LIMIT $5`, accountID, orderID, after.CreatedAt, after.ID, page.Limit)
}
