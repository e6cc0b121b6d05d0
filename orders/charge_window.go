package orders

import (
	"context"
	"time"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// ending reports whether the order must end without another confirm, and why.
func (r *orderRun) ending() (why failure, ends bool) {
	switch {
	case r.resolve:
		return refused("closed_by_operator", "The order was closed by its seller before the card was charged."), true
	case r.windowOver(r.order, r.LeaseEnd()):
		return refused("charge_window_over", "The order was not charged in time, and it will not be charged any more."), true
	default:
		return failure{}, false
	}
}

// windowOver reports whether the order's charge window ends before a lease does. A run may
// send its confirm at any time until its lease ends, so the lease must end within the window
// (R24). The database's clock has set both times (R8).
func (s *Service) windowOver(order orderRow, leaseEnd time.Time) bool {
	return leaseEnd.After(order.CreatedAt.Add(s.ChargeWindow))
}

// end ends the order. A charge, a payment in process or a decline counts; otherwise the
// intent is cancelled, and only then does the order fail (R23). failed is the error of
// reading the intent.
func (r *orderRun) end(ctx context.Context, intent payments.Intent, failed *payments.Error, why failure) (idempotency.Record, error) {
	notDeclined := intent.LastError == nil
	switch {
	case failed != nil && failed.IntentMissing: // deleted test data
		return r.recordFailure(why), nil
	case failed != nil:
		return nil, r.retryLater(ErrOutcomeUnknown, failed)
	case intent.Status == payments.StatusRequiresConfirmation,
		intent.Status == payments.StatusRequiresAction,
		intent.Status == payments.StatusRequiresPaymentMethod && notDeclined:
		return r.cancel(ctx, why)
	case intent.Status == payments.StatusCanceled && notDeclined:
		return r.recordFailure(why), nil
	default:
		return r.applyStatus(ctx, intent)
	}
}
