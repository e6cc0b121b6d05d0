// Package refunds refunds orders, exactly once per idempotency key:
//
//	started         tx 1: claim the key, reserve the amount, insert the refund
//	refund_created  call: list the intent's refunds, then refund (money moves here);
//	                tx 2: record the refund, store the response
//	finished
package refunds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments"
)

// Service refunds orders. It is safe for concurrent use, and keeps nothing, so its users may each make one.
type Service struct{ Orders *orders.Service }

// The operation and its path.
const (
	Operation = "create_refund"
	Path      = orders.Path + "/{id}/refunds"
)

// Operation returns the operation, for the engine.
func (s *Service) Operation() idempotency.Operation { return createRefund{s} }

// Refund is a refund as the API shows it.
type Refund struct {
	ID               uuid.UUID             `json:"id"`
	OrderID          uuid.UUID             `json:"order_id"`
	Amount           int64                 `json:"amount"`
	Currency         string                `json:"currency"`
	Reason           *string               `json:"reason"`
	Status           payments.RefundStatus `json:"status"` // pending until the provider has it
	ProviderRefundID *string               `json:"provider_refund_id"`
	CreatedAt        httpjson.Timestamp    `json:"created_at"`
	Source           string                `json:"source"` // see reconcile.SourceProvider
	FailureReason    *string               `json:"failure_reason,omitempty"`
}

func refundID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("refund", accountID, key)
}

// Request has the members of POST /v1/orders/{id}/refunds.
type Request struct {
	Amount int64   // 0: the remaining amount
	Reason *string // nil: none
}

// DecodeRequest decodes canonical JSON, or returns an [*httpjson.InvalidError].
func DecodeRequest(canonical []byte) (Request, error) {
	in := httpjson.NewDecoder(canonical)
	request := Request{Amount: in.Integer("amount", httpjson.Optional, 1, payments.MaxAmount)}
	if reason := in.Text("reason", httpjson.Optional, 1, 500); reason != "" {
		request.Reason = &reason
		in.Check("reason", slices.Contains(reconcile.Reasons, reason), httpjson.CodeInvalidValue, "must be one of "+strings.Join(reconcile.Reasons, ", "))
	}
	return request, in.Err()
}

type row struct {
	Refund
	IntentID         string     `db:"payment_intent_id"`
	KeyNumber        int        `db:"provider_key_number"` // in the provider key of the next call
	ProviderSentAt   *time.Time // time of the last call that may have been executed, or nil
	ProviderFailedAt *time.Time // when the provider stored a 500 under our key
	CancelRequested  bool       // by an operator, see createRefund.Mark
}

const notRefundable = "order-not-refundable"

// refundable returns the amount of a new refund. reserved is the sum of the order's other refunds.
func refundable(o orders.Order, requested, reserved int64) (int64, error) {
	remaining := o.Amount - reserved
	limits, _ := payments.FindCurrency(o.Currency)
	switch {
	case o.Status.Open():
		return 0, &httpjson.Rejection{
			Slug: notRefundable, Detail: "The payment of the order is in progress. Send the same request again shortly.", Soon: true,
		}
	case !o.Status.Paid():
		return 0, &httpjson.Rejection{Slug: notRefundable, Detail: "The payment of the order failed, so there is nothing to refund."}
	case remaining <= 0:
		return 0, &httpjson.Rejection{Slug: notRefundable, Detail: "The order is refunded in full. Refunds in progress count as refunded."}
	case requested == 0:
		return remaining, nil
	case requested > remaining:
		return 0, &httpjson.Rejection{
			Slug: "refund-exceeds-remaining", Detail: "Send an amount of at most what remains, or omit it to refund all of that.", Remaining: remaining,
		}
	case requested%limits.Step != 0:
		return 0, httpjson.Invalid("/amount", httpjson.CodeInvalidValue, fmt.Sprintf("must be a multiple of %d in %s", limits.Step, o.Currency))
	default:
		return requested, nil
	}
}

// matches reports whether the provider's refund is ours, with a known status.
func (r row) matches(at payments.Refund) bool {
	return at.Status.Known() && at.IntentID == r.IntentID && at.Amount == r.Amount && at.Currency == r.Currency &&
		payments.ParseMetadata(at.Metadata).RefundID == r.ID && (r.ProviderRefundID == nil || *r.ProviderRefundID == at.ID)
}

// lockOrderTx returns an order with the sum of its refunds. Under READ COMMITTED, only a separate
// statement sees what the lock's previous holder has committed.
func lockOrderTx(ctx context.Context, tx *idempotency.Tx, accountID, id, refundID uuid.UUID) (o orders.Order, reserved int64, err error) {
	if o, err = orders.LockTx(ctx, tx, accountID, id); err != nil {
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
	return httpjson.QueryRow(ctx, s.Orders.Pool, pgx.RowToStructByName[row], selectRefund+`
 WHERE r.account_id = $1
   AND r.id = $2`, accountID, id)
}

// Find implements [idempotency.Finder] with an id, or the provider's id. A refund without a key, such as the
// dashboard's, belongs to the history of its order's key.
func (op createRefund) Find(ctx context.Context, accountIDs []uuid.UUID, name string) ([]idempotency.Found, error) {
	id, _ := uuid.Parse(name) // otherwise uuid.Nil, which no refund has
	return postgres.Collect(ctx, op.service.Orders.Pool, "find refunds", pgx.RowToStructByPos[idempotency.Found], `
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
	return postgres.Collect(ctx, s.Orders.Pool, "list refunds", scan, selectRefund+`
 WHERE r.account_id = $1
   AND r.order_id = $2
   AND (r.created_at, r.id) < ($3, $4)
 ORDER BY r.created_at DESC, r.id DESC
 LIMIT $5`, accountID, orderID, after.CreatedAt, after.ID, page.Limit)
}
