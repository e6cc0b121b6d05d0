package orders

import (
	"context"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// ending reports whether the order must end without another confirm, and why: an
// operator closes it, or it is too old (R24). A run confirms a payment until its lease
// ends, also if it pauses before it sends the confirm. So the lease must end within the
// charge window. The database's clock alone decides: it set both times (R8).
func (r *orderRun) ending() (why failure, ends bool) {
	switch {
	case r.resolve:
		return closedByOperator(), true
	case r.LeaseEnd().After(r.order.CreatedAt.Add(r.chargeWindow)):
		return chargeWindowOver(), true
	default:
		return failure{}, false
	}
}

// end ends the order with what the provider has: a charge, a payment in process or a
// decline counts. Otherwise the intent is cancelled, and only then does the order fail
// (R23). failed is the error of reading the intent.
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
	case intent.Status == payments.StatusCanceled && notDeclined: // mostly by an earlier run
		return r.recordFailure(why), nil
	default:
		return r.applyStatus(ctx, intent)
	}
}

// chargeWindowOver is the failure of an order that was not charged within the charge
// window.
func chargeWindowOver() failure {
	return failure{
		slug:   SlugPaymentRefused,
		code:   "charge_window_over",
		detail: "The order was not charged in time, and it will not be charged any more.",
	}
}
