package api

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"example.com/orders-api/operations"
)

// operationRoutes adds the routes of an operation. Those of plain have no query.
func (h *handlers) operationRoutes(r, plain chi.Router, o operations.Registration) {
	id := "id"
	if o.IsNested() {
		id = o.Member + "_id"
	}
	r.Method(http.MethodPost, o.Path, handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		if _, err := target(r, o); err != nil {
			return err
		}
		return h.serve(w, r, o.Operation)
	}))
	plain.Method(http.MethodGet, o.Path+"/{"+id+"}", h.read(func(r *http.Request) ([]byte, error) {
		of, err := target(r, o)
		if err == nil {
			of.ID, err = parseID(chi.URLParam(r, id))
		}
		if err != nil {
			return nil, err
		}
		return encode(o.Get(r.Context(), of))
	}))
	if o.List != nil {
		r.Method(http.MethodGet, o.Path, h.read(func(r *http.Request) ([]byte, error) {
			of, err := target(r, o)
			if err != nil {
				return nil, err
			}
			page, err := parsePage(r.URL.RawQuery, o.Filters...)
			if err != nil {
				return nil, err
			}
			limit := page.Limit
			page.Limit++ // one more shows whether there are more
			return encodePage(limit, o.List(r.Context(), of, page))
		}))
	}
}

// target returns what a request is about, without the id of a resource.
func target(r *http.Request, o operations.Registration) (of operations.Target, err error) {
	of.AccountID = accountID(r.Context())
	if o.IsNested() {
		of.Parent, err = parseID(chi.URLParam(r, "id"))
	}
	return of, err
}

const readTimeout = 5 * time.Second // of a GET's queries

// read sends the response without a permit, because a client may be slow.
func (h *handlers) read(next func(r *http.Request) (json []byte, err error)) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body []byte
		err := h.Limiter.Do(r.Context(), accountID(r.Context()), func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			body, err = next(r.WithContext(ctx))
			return err
		})
		if err != nil {
			return err
		}
		write(w, http.StatusOK, "application/json", body)
		return nil
	}
}
