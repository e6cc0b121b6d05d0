package api

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/plainjson"
	"example.com/orders-api/orders"
)

// addedAPI holds the handlers of an operation that another package registers.
type addedAPI struct {
	orders.Registration
	idempotent idempotentAPI
}

func (a addedAPI) create(w http.ResponseWriter, r *http.Request) error {
	return a.idempotent.serve(w, r, func(ctx context.Context, req orders.Request) (idempotency.Result, error) {
		return a.idempotent.service.Execute(ctx, req, a.Operation)
	})
}

func (a addedAPI) get(r *http.Request) ([]byte, error) {
	id, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return nil, errNotFound
	}
	resource, err := a.Get(r.Context(), accountID(r.Context()), id)
	if err != nil {
		return nil, err
	}
	return plainjson.Marshal(resource)
}
