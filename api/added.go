package api

import (
	"context"
	"net/http"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// addedAPI holds the handlers of an operation that another package registers.
type addedAPI struct {
	idempotentAPI
	registered orders.Registration
}

func (a addedAPI) create(w http.ResponseWriter, r *http.Request) error {
	return a.serve(w, r, func(ctx context.Context, req orders.Request) (idempotency.Result, error) {
		return a.service.Execute(ctx, req, a.registered.Operation)
	})
}

func (a addedAPI) get(r *http.Request) ([]byte, error) {
	return encode(a.registered.Get(r.Context(), accountID(r.Context()), pathID(r, "id")))
}
