package orders

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/payments"
)

// compareListedRefunds goes through the provider's list of refunds, as
// compareIntents does intents.
func (r *reconciliation) compareListedRefunds(ctx context.Context) error {
	var batch []payments.Refund
	var failed error
	flush := func() bool {
		failed = r.compareRefundBatch(ctx, batch)
		batch = batch[:0]
		return failed == nil
	}
	err := r.service.payments.ListAllRefunds(ctx, r.report.Since.Add(-clockSkew), time.Time{}, func(at payments.Refund) bool {
		batch = append(batch, at)
		return len(batch) < intentBatch || flush()
	})
	if err != nil {
		return fmt.Errorf("list the provider's refunds: %w", err)
	}
	if failed == nil {
		flush()
	}
	return failed
}

func (r *reconciliation) compareRefundBatch(ctx context.Context, batch []payments.Refund) error {
	if len(batch) == 0 {
		return nil
	}
	references := make([]refundReference, len(batch))
	for n, at := range batch {
		references[n] = refundReferenceOf(at)
	}
	entries, err := r.service.lookUpRefunds(ctx, references)
	if err != nil {
		return err
	}
	for n, e := range entries {
		if !e.ours() {
			continue
		}
		r.report.Refunds++
		if e.row.RefundID != nil && *e.row.RefundID == batch[n].ID {
			r.listedRefunds[e.refundID] = struct{}{}
		}
		if err := r.compareRefund(ctx, e, batch[n]); err != nil {
			return err
		}
	}
	return nil
}

// compareRefund reports what the books and one refund do not agree about.
func (r *reconciliation) compareRefund(ctx context.Context, e refundEntry, at payments.Refund) error {
	if e.touchedAt.After(r.report.Until) || at.Created.After(r.report.Until) {
		return nil // a run may be at it, as with intents
	}
	kind := e.judge(at)
	if kind == KindRefundMoved {
		// Its status may change at any time, and the books may have followed since
		// the list was read. They are behind only if it is read behind them.
		now, found, err := r.service.readRefund(ctx, at.ID)
		if err != nil {
			return err
		}
		if found {
			at, kind = now, e.judge(now)
		}
	}
	if kind != "" {
		r.add(e.difference(kind, e.compared(at)).aboutRefund(at))
	}
	return nil
}

// compareBookedRefunds goes through our refunds of the span that the list did not
// show.
func (r *reconciliation) compareBookedRefunds(ctx context.Context) error {
	accounts, err := r.service.refundingAccounts(ctx, r.report.Since, r.report.Until)
	if err != nil {
		return err
	}
	for _, accountID := range accounts {
		before := place{r.report.Until, uuid.Max}
		for more := true; more; {
			var references []refundReference
			references, before, err = r.service.refundsBefore(ctx, accountID, r.report.Since, before)
			if err != nil {
				return err
			}
			entries, err := r.service.lookUpRefunds(ctx, references)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if err := r.compareBookedRefund(ctx, e); err != nil {
					return err
				}
			}
			more = len(references) == bookPage
		}
	}
	return nil
}

func (r *reconciliation) compareBookedRefund(ctx context.Context, e refundEntry) error {
	_, listed := r.listedRefunds[e.refundID]
	switch {
	case listed, e.unfinished, e.touchedAt.After(r.report.Until):
		return nil
	case e.row.RefundID == nil && e.row.Status == RefundPending:
		r.add(e.difference(KindRefundNotMade, "booked pending, no unfinished key"))
		return nil
	case e.row.RefundID == nil:
		return nil // the provider never had it
	}
	// Not listed is not missing: it may be younger than the list.
	at, found, err := r.service.readRefund(ctx, *e.row.RefundID)
	switch {
	case err != nil:
		return err
	case found:
		return r.compareRefund(ctx, e, at)
	case !e.row.Status.Void():
		r.add(e.difference(KindRefundNotMade, "booked "+string(e.row.Status)+", the provider does not know it"))
	}
	return nil
}

// readRefund asks the provider for one refund, which it may not know.
func (s *Service) readRefund(ctx context.Context, id string) (payments.Refund, bool, error) {
	at, err := s.payments.GetRefund(ctx, id)
	failed := providerError(err)
	switch {
	case failed == nil:
		return at, true, nil
	case failed.Code == "resource_missing":
		return payments.Refund{}, false, nil
	default:
		return payments.Refund{}, false, fmt.Errorf("ask the provider for %s: %w", id, failed)
	}
}

// followMoved lets the books follow a refund whose status moved. It moves no
// money.
func (r *reconciliation) followMoved(ctx context.Context, d Difference) (string, error) {
	if err := r.service.SyncRefund(ctx, d.AccountID, d.Refund, d.RefundID); err != nil {
		return "", fmt.Errorf("not followed: %w", err)
	}
	now, err := findRefundRow(ctx, r.service.pool, d.AccountID, d.Refund)
	if err != nil {
		return "", err
	}
	return "followed: " + string(now.Status), nil
}
