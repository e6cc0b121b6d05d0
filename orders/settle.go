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

// followRefund asks the provider what became of a refund and writes it down: a
// pending one succeeds or fails days later, and one that succeeded may fail. The
// stored answer of its key stays what it was. A refund that is not what the books
// say it is changes nothing, and operators hear of it.
func (s *Service) followRefund(ctx context.Context, accountID, id uuid.UUID, providerID string) error {
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
	if r.RefundID == nil && r.Status == RefundFailed && !RefundStatus(made.Status).over() {
		s.logger.ErrorContext(ctx, "a refund was made whose client was told that it failed", about...)
	}
	return s.settle(ctx, accountID, r, made)
}

// settle is settleTx in a transaction of its own.
func (s *Service) settle(ctx context.Context, accountID uuid.UUID, r refundRow, made payments.Refund) error {
	now, err := s.databaseTime(ctx)
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	if err := settleTx(batch, accountID, r, made, netip.Addr{}, now); err != nil {
		return err
	}
	// Each statement must see what the lock before it waited for.
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("settle refund: %w", postgres.Translate(err))
	}
	return nil
}
