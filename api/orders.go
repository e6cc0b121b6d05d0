package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations/validation"
	"example.com/orders-api/orders"
)

// orderRoutes adds the routes of orders. Those of plain have no query.
func (h *handlers) orderRoutes(r, plain chi.Router) {
	r.Method(http.MethodPost, "/v1/orders", h.create(h.Orders.Create))
	r.Method(http.MethodPost, "/v1/orders/{id}/refunds", handlerFunc(h.createRefund))
	r.Method(http.MethodGet, "/v1/orders", h.read(h.listOrders))
	plain.Method(http.MethodGet, "/v1/orders/{id}", h.read(get(h.Orders.Get)))
	r.Method(http.MethodGet, "/v1/orders/{id}/refunds", h.read(h.listRefunds))
	plain.Method(http.MethodGet, "/v1/orders/{id}/refunds/{refund_id}", h.read(h.getRefund))
}

func (h *handlers) createRefund(w http.ResponseWriter, r *http.Request) error {
	order, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	return h.serve(w, r, func(ctx context.Context, req idempotency.Request) (idempotency.Result, error) {
		return h.Orders.Refund(ctx, order, req)
	})
}

func (h *handlers) getRefund(r *http.Request) ([]byte, error) {
	return encode(h.Orders.GetRefund(r.Context(), accountID(r.Context()), pathID(r, "id"), pathID(r, "refund_id")))
}

func (h *handlers) listOrders(r *http.Request) ([]byte, error) {
	page, err := parsePage(r.URL.RawQuery, "an order", "reference")
	if err != nil {
		return nil, err
	}
	if page.query.Has("reference") && !orders.ValidReference(page.query.Get("reference")) {
		return nil, validation.Invalid("/reference", validation.CodeInvalidFormat, "must be 1 to 64 printable ASCII characters")
	}
	return encodePage(page.limit, h.Orders.List(r.Context(), accountID(r.Context()), page.limit+1, page.after, page.query.Get("reference")))
}

func (h *handlers) listRefunds(r *http.Request) ([]byte, error) {
	order, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	page, err := parsePage(r.URL.RawQuery, "a refund")
	if err != nil {
		return nil, err
	}
	return encodePage(page.limit, h.Orders.ListRefunds(r.Context(), accountID(r.Context()), order, page.limit+1, page.after))
}

func orderProblem(err error) (p problem, ok bool) {
	var (
		notRefundable *orders.NotRefundableError
		exceeds       *orders.ExceedsRemainingError
		exists        *orders.OrderExistsError
	)
	switch {
	case errors.As(err, &exists):
		p = newProblem("order-exists", "The order in order_id has this reference, and its payment has not failed.")
		p.OrderID = &exists.OrderID
	case errors.As(err, &notRefundable) && notRefundable.Status.Open():
		p = newProblem("order-not-refundable", "The payment of the order is in progress. Send the same request again shortly.").after(inProgressRetryAfter)
		p.Retry = retrySameKey
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
