package orders

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
)

// Every statement that a refund runs is in this file. Those that change a refund
// and its order lock the order first.

// queuer is a transaction that takes statements to send with its COMMIT: the
// engine's, or a pgx.Batch.
type queuer interface {
	Queue(query string, arguments ...any) *pgx.QueuedQuery
}

const lockOrderSQL = `
SELECT status,
       amount,
       currency
  FROM orders
 WHERE account_id = $1
   AND id = $2
   FOR NO KEY UPDATE`

// lockOrderTx keeps other refunds of the order away until the transaction ends.
// One that waits for it too long is told to come back (409, R21).
func lockOrderTx(ctx context.Context, tx *idempotency.Tx, accountID, id uuid.UUID) (lockedOrder, error) {
	var o lockedOrder
	err := tx.QueryRow(ctx, lockOrderSQL, accountID, id).Scan(&o.status, &o.amount, &o.currency)
	if errors.Is(err, pgx.ErrNoRows) {
		return lockedOrder{}, ErrNotFound
	}
	return o, err
}

// promisedTx is how much the refunds of a locked order hold. It is a statement of
// its own, because only one that begins behind the lock sees what the last holder
// committed. It fails when the key made something before and was reaped since
// (R17).
func promisedTx(ctx context.Context, tx *idempotency.Tx, run *idempotency.Run, order uuid.UUID) (int64, error) {
	var promised int64
	var ordered, refunded *uuid.UUID // made by the key
	err := tx.QueryRow(ctx, `
SELECT (SELECT coalesce(sum(amount), 0)::bigint
          FROM refunds
         WHERE account_id = $1
           AND order_id = $2
           AND status NOT IN ('failed', 'canceled')),
       (SELECT id
          FROM orders
         WHERE account_id = $1
           AND idempotency_key = $3),
       (SELECT order_id
          FROM refunds
         WHERE account_id = $1
           AND idempotency_key = $3)`, run.AccountID, order, string(run.Key)).Scan(&promised, &ordered, &refunded)
	switch {
	case err != nil:
		return 0, err
	case ordered != nil:
		return 0, &KeyExpiredError{OrderID: *ordered}
	case refunded != nil:
		return 0, &KeyExpiredError{OrderID: *refunded, RefundID: refundID(run.AccountID, run.Key)}
	default:
		return promised, nil
	}
}

func insertRefundTx(tx *idempotency.Tx, run *idempotency.Run, r Refund) {
	tx.Queue(`
INSERT INTO refunds (
    id,
    account_id,
    order_id,
    idempotency_key_id,
    idempotency_key,
    amount,
    currency,
    reason,
    status,
    created_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		r.ID, run.AccountID, r.OrderID, run.KeyID, string(run.Key), r.Amount, r.Currency, r.Reason, r.Status, r.CreatedAt)
}

func setProviderFailedTx(tx *idempotency.Tx, accountID, id uuid.UUID, at time.Time) {
	tx.Queue(`
UPDATE refunds
   SET provider_failed_at = $3
 WHERE account_id = $1
   AND id = $2`, accountID, id, at)
}

// failRefundTx fails a refund that the provider does not have. It looks whether
// that is so: an event may have told otherwise a moment ago.
func failRefundTx(ctx context.Context, tx *idempotency.Tx, accountID, id uuid.UUID, why string) error {
	tag, err := tx.Exec(ctx, `
UPDATE refunds
   SET status         = 'failed',
       failure_reason = $3
 WHERE account_id = $1
   AND id = $2
   AND refund_id IS NULL`, accountID, id, why)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("refund %s is at the provider", id)
	}
	return err
}

// applyRefundStatusTx records the provider's status of a refund, and updates the
// order's refunded amount and status. It is idempotent and independent of order:
// a succeeded refund never returns to pending, and a failed one stays failed. Only
// a change leaves an audit record.
func applyRefundStatusTx(tx queuer, accountID uuid.UUID, r refundRow, made payments.Refund, clientIP netip.Addr, at time.Time) error {
	recordID, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	var why *string
	if RefundStatus(made.Status).Void() && made.FailureReason != "" {
		why = &made.FailureReason
	}
	tx.Queue(lockOrderSQL, accountID, r.OrderID)
	tx.Queue(`
WITH applied AS (
    UPDATE refunds
       SET status         = $3,
           refund_id      = $4,
           failure_reason = $5
     WHERE account_id = $1
       AND id = $2
       AND (refund_id IS NULL OR refund_id = $4 AND (
               status IN ('pending', 'requires_action') AND status <> $3
            OR status = 'succeeded' AND $3 IN ('failed', 'canceled')
       ))
    RETURNING account_id, id, status, refund_id, amount, currency
)
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id,
    data,
    request_ip,
    created_at
)
SELECT $6,
       account_id,
       'refund.' || status,
       'refund',
       id::text,
       jsonb_build_object('refund_id', refund_id, 'amount', amount, 'currency', currency),
       $7,
       $8
  FROM applied`, accountID, r.ID, string(made.Status), made.ID, why, recordID, known(clientIP), at)
	// What the provider does not have yet is not paid back.
	tx.Queue(`
UPDATE orders AS o
   SET amount_refunded = back.total,
       status          = CASE back.total
                             WHEN 0 THEN 'paid'
                             WHEN o.amount THEN 'refunded'
                             ELSE 'partially_refunded'
                         END
  FROM (
           SELECT coalesce(sum(amount), 0)::bigint AS total
             FROM refunds
            WHERE account_id = $1
              AND order_id = $2
              AND refund_id IS NOT NULL
              AND status NOT IN ('failed', 'canceled')
       ) AS back
 WHERE o.account_id = $1
   AND o.id = $2
   AND o.amount_refunded <> back.total`, accountID, r.OrderID)
	return nil
}

const refundColumns = `
       r.id,
       r.order_id,
       r.amount,
       r.currency,
       r.reason,
       r.status,
       r.refund_id,
       r.created_at`

func (r *Refund) fields() []any {
	return []any{&r.ID, &r.OrderID, &r.Amount, &r.Currency, &r.Reason, &r.Status, &r.RefundID, &r.CreatedAt}
}

// findRefundRow reads one refund of the account, with its order's intent.
func findRefundRow(ctx context.Context, pool *pgxpool.Pool, accountID, id uuid.UUID) (refundRow, error) {
	var r refundRow
	err := pool.QueryRow(ctx, `
SELECT`+refundColumns+`,
       o.payment_intent_id,
       r.provider_failed_at
  FROM refunds AS r
  JOIN orders AS o
    ON o.account_id = r.account_id
   AND o.id = r.order_id
 WHERE r.account_id = $1
   AND r.id = $2`, accountID, id).Scan(append(r.fields(), &r.intentID, &r.providerFailedAt)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return refundRow{}, ErrNotFound
	}
	if err != nil {
		return refundRow{}, fmt.Errorf("read refund: %w", postgres.Translate(err))
	}
	r.CreatedAt = r.CreatedAt.UTC()
	return r, nil
}

// listRefunds reads up to limit refunds of an order, newest first, behind the
// refund after when that is not nil.
func listRefunds(ctx context.Context, pool *pgxpool.Pool, accountID, order uuid.UUID, limit int, after *refundRow) ([]Refund, error) {
	query, arguments := `
SELECT`+refundColumns+`
  FROM refunds AS r
 WHERE r.account_id = $1
   AND r.order_id = $2
 ORDER BY r.created_at DESC, r.id DESC
 LIMIT $3`, []any{accountID, order, limit}
	if after != nil {
		query, arguments = `
SELECT`+refundColumns+`
  FROM refunds AS r
 WHERE r.account_id = $1
   AND r.order_id = $2
   AND (r.created_at, r.id) < ($4, $5)
 ORDER BY r.created_at DESC, r.id DESC
 LIMIT $3`, append(arguments, after.CreatedAt, after.ID)
	}
	rows, err := pool.Query(ctx, query, arguments...)
	if err != nil {
		return nil, fmt.Errorf("list refunds: %w", postgres.Translate(err))
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Refund, error) {
		var r Refund
		err := row.Scan(r.fields()...)
		r.CreatedAt = r.CreatedAt.UTC()
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("list refunds: %w", postgres.Translate(err))
	}
	return found, nil
}
