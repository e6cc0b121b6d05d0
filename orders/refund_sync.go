package orders

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations"
	"example.com/orders-api/payments"
)

// SyncRefund reads a refund from the provider and applies its status, which may change for
// days. The stored response does not change.
func (s *Service) SyncRefund(ctx context.Context, accountID, id uuid.UUID, providerID string) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.StepTimeout)
	defer cancel()
	r, err := findRefund(ctx, s.config.Pool, accountID, id)
	if err != nil {
		return err
	}
	made, err := s.config.Payments.GetRefund(ctx, providerID)
	about := []any{"order_id", r.OrderID, "refund_id", r.ID}
	if failed := asPaymentError(err); failed != nil {
		return s.retryLater(operations.ErrProviderUnavailable, failed, about...)
	}
	if !r.matches(made) {
		return s.retryLater(operations.ErrOutcomeUnknown, &payments.Error{NeedsOperator: true, Code: "not_our_refund"}, about...)
	}
	if r.ProviderRefundID == nil && r.Status == payments.RefundFailed && !made.Status.Void() {
		s.config.Logger.ErrorContext(ctx, "the provider made a refund whose stored response is a failure", about...)
	}
	batch := &pgx.Batch{}
	applyRefundStatusTx(batch, accountID, r, made, netip.Addr{})
	// READ COMMITTED: each statement must see what the lock's previous holder committed.
	err = pgx.BeginTxFunc(ctx, s.config.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("apply refund status: %w", postgres.Translate(err))
	}
	return nil
}
