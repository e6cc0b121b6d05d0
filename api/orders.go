package api

import (
	"errors"

	"example.com/orders-api/orders"
	"example.com/orders-api/orders/refunds"
)

func orderProblem(err error) (p problem, ok bool) {
	var (
		notRefundable *refunds.NotRefundableError
		exceeds       *refunds.ExceedsRemainingError
		exists        *orders.OrderExistsError
	)
	switch {
	case errors.As(err, &exists):
		p = newProblem("order-exists", "The order in order_id has this reference, and its payment has not failed.")
		p.OrderID = &exists.OrderID
	case errors.As(err, &notRefundable) && notRefundable.Status.Open():
		p = newProblem("order-not-refundable", "The payment of the order is in progress. Send the same request again shortly.")
		p.Retry, p.retryAfter = retrySameKey, 1
	case errors.As(err, &notRefundable) && notRefundable.Status == orders.StatusPaymentFailed:
		p = newProblem("order-not-refundable", "The payment of the order failed, so there is nothing to refund.")
	case errors.As(err, &notRefundable):
		p = newProblem("order-not-refundable", "The order is refunded in full. Refunds in progress count as refunded.")
	case errors.As(err, &exceeds):
		p = newProblem("refund-exceeds-remaining", "Send an amount of at most what remains, or omit it to refund all of that.")
		p.Remaining = exceeds.Remaining
	default:
		return p, false
	}
	return p, true
}
