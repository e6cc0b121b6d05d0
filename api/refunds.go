package api

import (
	"context"
	"errors"
	"iter"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/refunds"
)

func (h *Handlers) refundRoutes(r chi.Router) {
	r.Method(http.MethodPost, refunds.Path, h.Post(refunds.Operation))
	r.Method(http.MethodGet, refunds.Path+"/{refund_id}", h.Get(func(ctx context.Context, accountID uuid.UUID, ids []uuid.UUID) (any, error) {
		return h.Refunds.Get(ctx, accountID, ids[0], ids[1])
	}))
	r.Method(http.MethodGet, refunds.Path, list(h, func(ctx context.Context, accountID uuid.UUID, ids []uuid.UUID, page httpjson.Page) (iter.Seq2[refunds.Refund, error], error) {
		return h.Refunds.List(ctx, accountID, ids[0], page)
	}))
}

func refundProblem(err error) (p problem, ok bool) {
	if exceeds, ok := errors.AsType[*refunds.ExceedsRemainingError](err); ok {
		p = newProblem("refund-exceeds-remaining", "Send an amount of at most what remains, or omit it to refund all of that.")
		p.Remaining = exceeds.Remaining
		return p, true
	}
	order, ok := errors.AsType[*refunds.NotRefundableError](err)
	switch {
	case !ok:
	case order.Status.Open():
		p = newProblem("order-not-refundable", "The payment of the order is in progress. Send the same request again shortly.")
		p.Retry, p.retryAfter = retrySameKey, 1
	case order.Status == orders.StatusPaymentFailed:
		p = newProblem("order-not-refundable", "The payment of the order failed, so there is nothing to refund.")
	default:
		p = newProblem("order-not-refundable", "The order is refunded in full. Refunds in progress count as refunded.")
	}
	return p, ok
}
