package api

import (
	"context"
	"net/http"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

type refundsAPI struct{ idempotentAPI }

func (a refundsAPI) create(w http.ResponseWriter, r *http.Request) error {
	order, err := pathID(r, "id")
	if err != nil {
		return err
	}
	return a.serve(w, r, func(ctx context.Context, req orders.Request) (idempotency.Result, error) {
		return a.service.Refund(ctx, order, req)
	})
}

func (a refundsAPI) get(r *http.Request) ([]byte, error) {
	order, err := pathID(r, "id")
	if err != nil {
		return nil, err
	}
	id, err := pathID(r, "refund_id")
	if err != nil {
		return nil, err
	}
	return encode(a.service.GetRefund(r.Context(), accountID(r.Context()), order, id))
}

func (a refundsAPI) list(r *http.Request) ([]byte, error) {
	order, err := pathID(r, "id")
	if err != nil {
		return nil, err
	}
	limit, after, err := parsePage(r.URL.RawQuery, "a refund")
	if err != nil {
		return nil, err
	}
	return encodePage(limit, a.service.ListRefunds(r.Context(), accountID(r.Context()), order, limit+1, after))
}
