package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
)

// Sources of a refund: an operation of ours, or the provider's dashboard.
const (
	SourceAPI      = "api"
	SourceProvider = "provider"
)

// Reasons are those that a client can state. The provider has others.
var Reasons = []string{"duplicate", "fraudulent", "requested_by_customer"}

// Refund is a refund of an order as the provider states it.
type Refund struct {
	AccountID, ID, OrderID uuid.UUID
	Source                 string
	Made                   payments.Refund // with a known status
}

// QueueRefund queues the statement that records a refund, and writes an audit record if it changes
// something. If the order's refunds were read later than the last time, the provider's state is recorded
// unconditionally. A response changes only a refund that is not recorded yet, because it may be older.
func QueueRefund(tx postgres.Queuer, r Refund, laterRead bool) {
	var reason, failure *string
	if slices.Contains(Reasons, r.Made.Reason) {
		reason = &r.Made.Reason
	}
	if r.Made.Status.Void() && r.Made.FailureReason != "" {
		failure = &r.Made.FailureReason
	}
	tx.Queue(`
WITH applied AS (
    INSERT INTO refunds AS r (
        account_id,
        id,
        order_id,
        amount,
        currency,
        reason,
        status,
        provider_refund_id,
        failure_reason,
        source,
        provider_sent_at,
        created_at
    ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, NULL, $11)
        ON CONFLICT (account_id, id) DO UPDATE
       SET status             = excluded.status,
           provider_refund_id = excluded.provider_refund_id,
           amount             = excluded.amount, -- see adoptRest
           failure_reason     = excluded.failure_reason
     WHERE r.order_id = excluded.order_id
       AND (
               r.provider_refund_id IS NULL
            OR (
                   $12
               AND r.provider_refund_id = excluded.provider_refund_id
               AND (r.status, r.amount) IS DISTINCT FROM (excluded.status, excluded.amount)
            )
       )
    RETURNING account_id, id, status, provider_refund_id, amount, currency
)`+audit.Insert+`
SELECT $13,
       account_id,
       'refund.' || status,
       'refund',
       id::text,
       jsonb_build_object('provider_refund_id', provider_refund_id, 'amount', amount, 'currency', currency)
  FROM applied`, r.AccountID, r.ID, r.OrderID, r.Made.Amount, r.Made.Currency, reason, string(r.Made.Status), r.Made.ID, failure,
		r.Source, r.Made.Created, laterRead, uuid.Must(uuid.NewV7()))
}

// QueueTotals queues the UPDATE of an order's amount_refunded and status. The transaction locks the order
// first. A refund without a provider_refund_id only reserves its amount, and has returned no money.
func QueueTotals(tx postgres.Queuer, accountID, orderID uuid.UUID) {
	tx.Queue(`
UPDATE orders AS o
   SET amount_refunded = least(back.total, o.amount),
       status          = CASE
                             WHEN back.total = 0 THEN 'paid'
                             WHEN back.total >= o.amount THEN 'refunded'
                             ELSE 'partially_refunded'
                         END
  FROM (
           SELECT coalesce(sum(amount), 0)::bigint AS total
             FROM refunds
            WHERE account_id = $1
              AND order_id = $2
              AND provider_refund_id IS NOT NULL
              AND status NOT IN ('failed', 'canceled')
       ) AS back
 WHERE o.account_id = $1
   AND o.id = $2
   AND o.paid_at IS NOT NULL
   AND o.amount_refunded <> least(back.total, o.amount)`, accountID, orderID)
}

// CountUnansweredDisputes returns the number of disputes for which the provider awaits the shop's response.
func CountUnansweredDisputes(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	err = pool.QueryRow(ctx, `
SELECT count(*)
  FROM orders, jsonb_array_elements(disputes) AS d
 WHERE disputes IS NOT NULL -- for its index
   AND d->>'status' IN ('needs_response', 'warning_needs_response')`).Scan(&n)
	if err != nil {
		err = fmt.Errorf("count disputes: %w", err)
	}
	return n, err
}
