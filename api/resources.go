package api

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"example.com/orders-api/operations"
)

// operationRoutes adds the routes of an operation. The routes of plain accept no query.
func (h *handlers) operationRoutes(r, plain chi.Router, o operations.Registration) {
	id := "id"
	if o.IsNested() {
		id = o.Member + "_id"
	}
	r.Method(http.MethodPost, o.Path, handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		if _, err := target(r, o, ""); err != nil {
			return err
		}
		return h.serve(w, r, o.Operation)
	}))
	if o.Get != nil {
		plain.Method(http.MethodGet, o.Path+"/{"+id+"}", h.read(o, id, func(r *http.Request, of operations.Target) ([]byte, error) {
			return encode(o.Get(r.Context(), of))
		}))
	}
	if o.List != nil {
		r.Method(http.MethodGet, o.Path, h.read(o, "", func(r *http.Request, of operations.Target) ([]byte, error) {
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

// target returns the resource that the path parameter id names, or all of them if id is empty.
func target(r *http.Request, o operations.Registration, id string) (of operations.Target, err error) {
	of.AccountID = accountID(r.Context())
	if o.IsNested() {
		of.Parent, err = parseID(chi.URLParam(r, "id"))
	}
	if err == nil && id != "" {
		of.ID, err = parseID(chi.URLParam(r, id))
	}
	return of, err
}

const readTimeout = 5 * time.Second // of a GET's queries

// read sends the response without a permit, because a client may be slow.
func (h *handlers) read(o operations.Registration, id string, next func(*http.Request, operations.Target) (json []byte, err error)) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		of, err := target(r, o, id)
		if err != nil {
			return err
		}
		var body []byte
		err = h.Limiter.Do(r.Context(), func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			body, err = next(r.WithContext(ctx), of)
			return err
		})
		if err != nil {
			return err
		}
		write(w, http.StatusOK, "application/json", body)
		return nil
	}
}
