package api

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

type refundsAPI struct{ idempotentAPI }

func (a refundsAPI) create(w http.ResponseWriter, r *http.Request) error {
	order, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	return a.serve(w, r, func(ctx context.Context, req orders.Request) (idempotency.Result, error) {
		return a.service.Refund(ctx, order, req)
	})
}

func (a refundsAPI) get(r *http.Request) ([]byte, error) {
	return encode(a.service.GetRefund(r.Context(), accountID(r.Context()), pathID(r, "id"), pathID(r, "refund_id")))
}

func (a refundsAPI) list(r *http.Request) ([]byte, error) {
	order, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	limit, after, err := parsePage(r.URL.RawQuery, "a refund")
	if err != nil {
		return nil, err
	}
	return encodePage(limit, a.service.ListRefunds(r.Context(), accountID(r.Context()), order, limit+1, after))
}
