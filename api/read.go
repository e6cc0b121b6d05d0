package api

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/orders-api/internal/httpjson"
)

const readTimeout = 5 * time.Second // of a GET's queries

// Get returns the handler of a resource, whose request has no query. find gets the ids in the path.
func (h *Handlers) Get(find func(ctx context.Context, accountID uuid.UUID, ids []uuid.UUID) (any, error)) http.Handler {
	return withoutQuery(handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		return h.read(w, r, func(ctx context.Context, ids []uuid.UUID) (any, error) {
			return find(ctx, accountID(ctx), ids)
		})
	}))
}

type listFunc[T any] = func(ctx context.Context, accountID uuid.UUID, ids []uuid.UUID, page httpjson.Page) ([]T, error)

// list returns the handler of a list, the newest first, whose query may also have filters.
func list[T any](h *Handlers, find listFunc[T], filters ...string) http.Handler {
	return handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		return h.read(w, r, func(ctx context.Context, ids []uuid.UUID) (any, error) {
			query, err := parsePage(r.URL.RawQuery, filters...)
			if err != nil {
				return nil, err
			}
			limit := query.Limit
			query.Limit++ // one more shows whether there are more
			objects, err := find(ctx, accountID(ctx), ids, query)
			return page[T]{objects[:min(limit, len(objects))], len(objects) > limit}, err
		})
	})
}

// read sends the response without a permit, because a client may be slow.
func (h *Handlers) read(w http.ResponseWriter, r *http.Request, find func(ctx context.Context, ids []uuid.UUID) (any, error)) error {
	ids, err := pathIDs(r)
	if err != nil {
		return err
	}
	var found any
	err = h.Limiter.Do(r.Context(), func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		found, err = find(ctx, ids)
		return err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, found)
}

// pathIDs returns the ids in the path. Another form of an id names nothing.
func pathIDs(r *http.Request) (ids []uuid.UUID, err error) {
	for _, value := range chi.RouteContext(r.Context()).URLParams.Values {
		id, err := parseID(value)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}
