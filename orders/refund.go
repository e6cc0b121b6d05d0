package orders

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/currency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations"
	"example.com/orders-api/operations/audit"
	"example.com/orders-api/operations/validation"
	"example.com/orders-api/payments"
)

// Refund is a refund as the API shows it.
type Refund struct {
	ID               uuid.UUID             `json:"id"`
	OrderID          uuid.UUID             `json:"order_id"`
	Amount           int64                 `json:"amount"`
	Currency         string                `json:"currency"`
	Reason           *string               `json:"reason"`
	Status           payments.RefundStatus `json:"status"` // pending until the provider has it
	ProviderRefundID *string               `json:"provider_refund_id"`
	CreatedAt        operations.Timestamp  `json:"created_at"`
}

func refundPath(order, id uuid.UUID) string { return orderPath(order) + "/refunds/" + id.String() }

func refundID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("refund", accountID, key)
}

// RefundRequest has the members of POST /v1/orders/{id}/refunds.
type RefundRequest struct {
	Amount int64   // 0: the remaining amount
	Reason *string // nil: none
}

var refundReasons = []string{"duplicate", "fraudulent", "requested_by_customer"}

// DecodeRefundRequest decodes a request like [DecodeOrderRequest].
func DecodeRefundRequest(canonical []byte) (RefundRequest, error) {
	in := validation.NewDecoder(canonical)
	amount := in.Integer("amount", validation.Optional, 1, currency.MaxAmount)
	reason := in.Text("reason", validation.Optional, 1, maxDescription)
	known := reason == "" || slices.Contains(refundReasons, reason)
	in.Check("reason", known, validation.CodeInvalidValue, "must be one of "+strings.Join(refundReasons, ", "))
	return RefundRequest{Amount: amount, Reason: optional(reason)}, in.Err()
}

type refundRow struct {
	Refund
	IntentID         string     `db:"payment_intent_id"`
	ProviderAttempt  int        // number of the provider key (R12)
	ProviderSentAt   *time.Time // of the last call that may have been executed, or nil
	ProviderFailedAt *time.Time // when the provider stored a 500 under our key (R12)
}

// refundable returns the amount of a refund beside those that have reserved theirs.
func (o Order) refundable(requested, reserved int64) (int64, error) {
	remaining := o.Amount - reserved
	limits, _ := currency.Find(o.Currency)
	switch {
	case !o.Status.Paid(), remaining <= 0:
		return 0, &NotRefundableError{Status: o.Status}
	case requested == 0:
		return remaining, nil
	case requested > remaining:
		return 0, &ExceedsRemainingError{Remaining: remaining}
	case requested%limits.Step != 0:
		return 0, validation.Invalid("/amount", validation.CodeInvalidValue, fmt.Sprintf("must be a multiple of %d in %s", limits.Step, o.Currency))
	default:
		return requested, nil
	}
}

// matches reports whether the provider's refund is ours, with a known status.
func (r refundRow) matches(at payments.Refund) bool {
	known := []payments.RefundStatus{
		payments.RefundPending, payments.RefundRequiresAction, payments.RefundSucceeded, payments.RefundFailed, payments.RefundCanceled,
	}
	return slices.Contains(known, at.Status) && at.Matches(r.IntentID, r.Amount, r.Currency, r.ID.String()) &&
		(r.ProviderRefundID == nil || *r.ProviderRefundID == at.ID)
}

// Changes of a refund and its order lock the order first.

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
func lockOrderTx(ctx context.Context, tx *idempotency.Tx, accountID, id uuid.UUID) (o Order, reserved int64, err error) {
	err = tx.QueryRow(ctx, lockOrderSQL, []any{accountID, id}, &o.Status, &o.Amount, &o.Currency)
	if errors.Is(err, pgx.ErrNoRows) {
		return o, 0, operations.ErrNotFound
	}
	if err != nil {
		return o, 0, err
	}
	err = tx.QueryRow(ctx, `
SELECT coalesce(sum(amount), 0)::bigint
  FROM refunds
 WHERE account_id = $1
   AND order_id = $2
   AND status NOT IN ('failed', 'canceled')`, []any{accountID, id}, &reserved)
	return o, reserved, err
}

func insertRefundTx(tx *idempotency.Tx, run *idempotency.Run, r Refund) {
	tx.Queue(`
INSERT INTO refunds (
    id,
    account_id,
    order_id,
    idempotency_key,
    amount,
    currency,
    reason,
    status,
    created_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now())`,
		r.ID, run.AccountID, r.OrderID, string(run.Key), r.Amount, r.Currency, r.Reason, r.Status)
}

func setProviderAttemptTx(tx *idempotency.Tx, accountID uuid.UUID, r refundRow) {
	tx.Queue(`
UPDATE refunds
   SET provider_attempt   = $3,
       provider_sent_at   = $4,
       provider_failed_at = $5
 WHERE account_id = $1
   AND id = $2`, accountID, r.ID, r.ProviderAttempt, r.ProviderSentAt, r.ProviderFailedAt)
}

// failRefundTx fails if an event has just recorded the refund.
func failRefundTx(ctx context.Context, tx *idempotency.Tx, accountID, id uuid.UUID, why string) error {
	err := tx.QueryRow(ctx, `
UPDATE refunds
   SET status         = 'failed',
       failure_reason = $3
 WHERE account_id = $1
   AND id = $2
   AND provider_refund_id IS NULL
RETURNING id`, []any{accountID, id, why}, new(uuid.UUID))
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("refund %s is at the provider", id)
	}
	return err
}

// applyRefundStatusTx records the provider's status of a refund and updates the order. Statuses
// may arrive out of order, so a succeeded refund never becomes pending, and a failed one stays so.
func applyRefundStatusTx(ctx context.Context, tx postgres.Queuer, accountID uuid.UUID, r refundRow, made payments.Refund) {
	tx.Queue(lockOrderSQL, accountID, r.OrderID)
	tx.Queue(`
WITH applied AS (
    UPDATE refunds
       SET status             = $3,
           provider_refund_id = $4,
           amount             = $8, -- see adoptRest
           failure_reason     = CASE WHEN $3 IN ('failed', 'canceled') THEN $5 END
     WHERE account_id = $1
       AND id = $2
       AND (provider_refund_id IS NULL OR provider_refund_id = $4 AND (
               status IN ('pending', 'requires_action') AND status <> $3
            OR status = 'succeeded' AND $3 IN ('failed', 'canceled')
       ))
    RETURNING account_id, id, status, provider_refund_id, amount, currency
)`+audit.Insert+`
SELECT $6,
       account_id,
       'refund.' || status,
       'refund',
       id::text,
       jsonb_build_object('provider_refund_id', provider_refund_id, 'amount', amount, 'currency', currency),
       $7
  FROM applied`, accountID, r.ID, string(made.Status), made.ID, optional(made.FailureReason), uuid.Must(uuid.NewV7()), audit.ClientIP(ctx), r.Amount)
	// A refund that is only reserved here has returned no money.
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
              AND provider_refund_id IS NOT NULL
              AND status NOT IN ('failed', 'canceled')
       ) AS back
 WHERE o.account_id = $1
   AND o.id = $2
   AND o.amount_refunded <> back.total`, accountID, r.OrderID)
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
       o.payment_intent_id,
       r.provider_attempt,
       r.provider_sent_at,
       r.provider_failed_at
  FROM refunds AS r
  JOIN orders AS o
    ON o.account_id = r.account_id
   AND o.id = r.order_id`

func findRefund(ctx context.Context, pool *pgxpool.Pool, accountID, id uuid.UUID) (refundRow, error) {
	return findRow(ctx, pool, pgx.RowToStructByName[refundRow], selectRefund+`
 WHERE r.account_id = $1
   AND r.id = $2`, accountID, id)
}

// ListRefunds is like [Service.List] for the refunds of an order.
func (s *Service) ListRefunds(ctx context.Context, accountID, order uuid.UUID, limit int, after uuid.UUID) iter.Seq2[Refund, error] {
	if _, err := s.Get(ctx, accountID, order); err != nil {
		return failedList[Refund](err)
	}
	last := Refund{ID: uuid.Max, CreatedAt: endOfTime}
	if after != uuid.Nil {
		var err error
		if last, err = s.GetRefund(ctx, accountID, order, after); err != nil {
			return failedList[Refund](cursorError(err, "a refund of this order"))
		}
	}
	return list(ctx, s.config.Pool, pgx.RowToStructByName[refundRow], func(r refundRow) Refund { return r.Refund }, selectRefund+`
 WHERE r.account_id = $1
   AND r.order_id = $2
   AND (r.created_at, r.id) < ($3, $4)
 ORDER BY r.created_at DESC, r.id DESC
 LIMIT $5`, accountID, order, last.CreatedAt.Time, last.ID, limit)
}
