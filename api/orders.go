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
)

func (h *Handlers) orderRoutes(r chi.Router) {
	r.Method(http.MethodPost, orders.Path, h.Post(orders.CreateOperation))
	r.Method(http.MethodPost, orders.Path+"/{id}/cancel", h.Post(orders.CancelOperation))
	r.Method(http.MethodGet, orders.Path+"/{id}", h.Get(func(ctx context.Context, accountID uuid.UUID, ids []uuid.UUID) (any, error) {
		return h.Orders.Get(ctx, accountID, ids[0])
	}))
	r.Method(http.MethodGet, orders.Path, list(h, func(ctx context.Context, accountID uuid.UUID, _ []uuid.UUID, page httpjson.Page) (iter.Seq2[orders.Order, error], error) {
		return h.Orders.List(ctx, accountID, page)
	}, "reference"))
}

func orderProblem(err error) (p problem, ok bool) {
	if exists, ok := errors.AsType[*orders.OrderExistsError](err); ok {
		p = newProblem("order-exists", "The order in order_id has this reference, and its payment has not failed.")
		p.OrderID = &exists.OrderID
		return p, true
	}
	paid, ok := errors.AsType[*orders.NotCancelableError](err)
	if ok {
		p = newProblem("order-not-cancelable", "The card was charged before the order could be cancelled.")
		p.OrderID = &paid.OrderID
	}
	return p, ok
}
