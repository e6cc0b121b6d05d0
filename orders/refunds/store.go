package refunds

import (
	"context"
	"errors"
	"iter"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/operations"
	"example.com/orders-api/orders"
)

// lockOrderSQL is the first statement of a transaction that reserves an amount of the order.
const lockOrderSQL = `
SELECT status,
       amount,
       currency
  FROM orders
 WHERE account_id = $1
   AND id = $2
   FOR NO KEY UPDATE`

// lockOrderTx returns an order with the sum of its refunds. Under READ COMMITTED, only a separate
// statement sees what the lock's previous holder has committed.
func lockOrderTx(ctx context.Context, tx *idempotency.Tx, accountID, id, refundID uuid.UUID) (o orders.Order, reserved int64, err error) {
	err = tx.QueryRow(ctx, lockOrderSQL, []any{accountID, id}, &o.Status, &o.Amount, &o.Currency)
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
       r.provider_attempt,
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

// get returns the refund of an order, or [httpjson.ErrNotFound].
func (s *Service) get(ctx context.Context, of operations.Target) (Refund, error) {
	r, err := s.find(ctx, of.AccountID, of.ID)
	if err == nil && r.OrderID != of.Parent {
		err = httpjson.ErrNotFound
	}
	return r.Refund, err
}

// List returns the refunds of an order, the newest first.
func (s *Service) List(ctx context.Context, of operations.Target, page httpjson.Page) iter.Seq2[any, error] {
	if _, err := s.Orders.Get(ctx, of.AccountID, of.Parent); err != nil {
		return httpjson.NoList(err)
	}
	after, err := page.Cursor(func(id uuid.UUID) (httpjson.Timestamp, error) {
		r, err := s.get(ctx, operations.Target{AccountID: of.AccountID, Parent: of.Parent, ID: id})
		return r.CreatedAt, err
	})
	if err != nil {
		return httpjson.NoList(err)
	}
	return httpjson.List(ctx, s.Pool, pgx.RowToStructByName[row], func(r row) any { return r.Refund }, selectRefund+`
 WHERE r.account_id = $1
   AND r.order_id = $2
   AND (r.created_at, r.id) < ($3, $4)
 ORDER BY r.created_at DESC, r.id DESC
 LIMIT $5`, of.AccountID, of.Parent, after.CreatedAt, after.ID, page.Limit)
}
