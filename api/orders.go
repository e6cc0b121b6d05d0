package api

import (
	"context"
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
	r.Method(http.MethodGet, orders.Path, list(h, func(ctx context.Context, accountID uuid.UUID, _ []uuid.UUID, page httpjson.Page) ([]orders.Order, error) {
		return h.Orders.List(ctx, accountID, page)
	}, "reference"))
}
