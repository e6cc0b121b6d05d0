package orders

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
)

// SyncRefund reads a refund from the provider and applies its status to our
// record: a pending refund succeeds or fails days later, and a succeeded one may
// still fail. It moves no money, and the stored response of the key stays. A
// provider refund that does not match the record changes nothing and is logged
// for operators. Errors are [ErrNotFound], [*ProviderError] and the database's.
func (s *Service) SyncRefund(ctx context.Context, accountID, id uuid.UUID, providerID string) error {
	ctx, cancel := context.WithTimeout(ctx, s.stepTimeout)
	defer cancel()
	r, err := findRefundRow(ctx, s.pool, accountID, id)
	if err != nil {
		return err
	}
	made, err := s.payments.GetRefund(ctx, providerID)
	about := []any{"order_id", r.OrderID, "refund_id", r.ID}
	if failed := providerError(err); failed != nil {
		return s.noOutcome(ErrProviderUnavailable, failed, about...)
	}
	if !r.madeAs(made) {
		return s.noOutcome(ErrOutcomeUnknown, &payments.Error{Misuse: true, Code: "not_our_refund"}, about...)
	}
	if r.RefundID == nil && r.Status == RefundFailed && !RefundStatus(made.Status).Void() {
		s.logger.ErrorContext(ctx, "the provider has a refund that failed according to its stored response", about...)
	}
	return s.applyRefundStatus(ctx, accountID, r, made)
}

// applyRefundStatus runs applyRefundStatusTx in a transaction of its own.
func (s *Service) applyRefundStatus(ctx context.Context, accountID uuid.UUID, r refundRow, made payments.Refund) error {
	now, err := postgres.Now(ctx, s.pool)
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	if err := applyRefundStatusTx(batch, accountID, r, made, netip.Addr{}, now); err != nil {
		return err
	}
	// READ COMMITTED: each statement must see the commits that its locks waited for.
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("apply refund status: %w", postgres.Translate(err))
	}
	return nil
}
