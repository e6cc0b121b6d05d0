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

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/provider"
	"example.com/orders-api/payments"
)

// Service refunds orders. It is safe for concurrent use. One that only reads needs only Pool and Orders.
type Service struct {
	Calls  provider.Calls
	Pool   *pgxpool.Pool
	Orders *orders.Service
}

const path = "/v1/orders/{id}/refunds"

// Registration describes the operation for the API, the completer and operators.
func (s *Service) Registration() operations.Registration {
	return operations.Registration{
		Operation: createRefund{service: s},
		Path:      path,
		Member:    "refund",
		ID:        refundID,
		Get:       func(ctx context.Context, of operations.Target) (any, error) { return s.get(ctx, of) },
		List:      s.List,
		Table:     "refunds",
		Names:     []string{"provider_refund_id = $3"},
		// A refund without a key, such as the dashboard's, belongs to the history of its order's key.
		KeySQL: `coalesce(idempotency_key, (
           SELECT idempotency_key
             FROM orders AS o
            WHERE o.account_id = refunds.account_id
              AND o.id = refunds.order_id
       ))`,
		Sync:    s.sync,
		Resolve: createRefund{service: s, closedByOperator: true},
	}
}

// sync reads a refund from the provider and records its status, which may change for days. The stored
// response does not change, so failed reports that the refund has failed since.
func (s *Service) sync(ctx context.Context, accountID, id uuid.UUID, providerID string) (failed bool, err error) {
	ctx, cancel := s.Calls.Context(ctx)
	defer cancel()
	r, err := s.find(ctx, accountID, id)
	if err != nil {
		return false, err
	}
	made, err := s.Calls.Payments.GetRefund(ctx, providerID)
	about := []any{"order_id", r.OrderID, "refund_id", r.ID}
	if failed := provider.Failure(err); failed != nil {
		return false, s.Calls.RetryLater(operations.ErrProviderUnavailable, failed, about...)
	}
	if !r.matches(made) {
		return false, s.Calls.RetryLater(operations.ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: "not_our_refund"}, about...)
	}
	if r.ProviderRefundID == nil && r.Status == payments.RefundFailed && !made.Status.Void() {
		s.Calls.Logger.ErrorContext(ctx, "the provider made a refund whose stored response is a failure", about...)
	}
	batch := &pgx.Batch{}
	applyStatusTx(ctx, batch, accountID, r, made)
	// READ COMMITTED: each statement must see what the lock's previous holder committed.
	err = pgx.BeginTxFunc(ctx, s.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return false, fmt.Errorf("apply refund status: %w", postgres.Translate(err))
	}
	if failed = made.Status.Void() && !r.Status.Void(); failed {
		s.Calls.Logger.WarnContext(ctx, "a refund failed after its response", append(about, "reason", made.FailureReason)...)
	}
	return failed, nil
}
