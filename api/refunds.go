package api

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// refundsAPI holds the handlers of /v1/orders/{id}/refunds.
type refundsAPI struct {
	service    *orders.Service
	idempotent idempotentAPI
}

// create is POST /v1/orders/{id}/refunds.
func (a refundsAPI) create(w http.ResponseWriter, r *http.Request) error {
	order, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return errNotFound
	}
	return a.idempotent.serve(w, r, func(ctx context.Context, req orders.Request) (idempotency.Result, error) {
		return a.service.Refund(ctx, order, req)
	})
}

// get is GET /v1/orders/{id}/refunds/{refund_id}.
func (a refundsAPI) get(w http.ResponseWriter, r *http.Request) error {
	order, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return errNotFound
	}
	id, err := parseID(chi.URLParam(r, "refund_id"))
	if err != nil {
		return errNotFound
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	refund, err := a.service.GetRefund(ctx, accountID(ctx), order, id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, refund)
}

// list is GET /v1/orders/{id}/refunds.
func (a refundsAPI) list(w http.ResponseWriter, r *http.Request) error {
	order, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return errNotFound
	}
	limit, after, err := parsePage(r.URL.RawQuery, "a refund")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	page, more, err := a.service.ListRefunds(ctx, accountID(ctx), order, limit, after)
	if err != nil {
		return err
	}
	return writePage(w, page, more)
}
