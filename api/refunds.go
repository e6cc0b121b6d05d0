package api

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders/refunds"
)

func (h *Handlers) refundRoutes(r chi.Router) {
	service := &refunds.Service{Orders: h.Orders}
	r.Method(http.MethodPost, refunds.Path, h.Post(refunds.Operation))
	r.Method(http.MethodGet, refunds.Path+"/{refund_id}", h.Get(func(ctx context.Context, accountID uuid.UUID, ids []uuid.UUID) (any, error) {
		return service.Get(ctx, accountID, ids[0], ids[1])
	}))
	r.Method(http.MethodGet, refunds.Path, list(h, func(ctx context.Context, accountID uuid.UUID, ids []uuid.UUID, page httpjson.Page) ([]refunds.Refund, error) {
		return service.List(ctx, accountID, ids[0], page)
	}))
}
