package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

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

const (
	defaultPage = 20
	maxPage     = 100
)

type page[T any] struct {
	Data    []T  `json:"data"`
	HasMore bool `json:"has_more"`
}

// parsePage accepts only limit, after and filters.
func parsePage(rawQuery string, filters ...string) (httpjson.Page, error) {
	query, err := readQuery(rawQuery, append([]string{"limit", "after"}, filters...)...)
	if err != nil {
		return httpjson.Page{}, err
	}
	var errs []httpjson.Field
	page := httpjson.Page{Limit: defaultPage, Filters: query}
	reject := func(pointer, code, detail string) {
		errs = append(errs, httpjson.Field{Pointer: pointer, Code: code, Detail: detail})
	}
	if limit, given := query["limit"]; given {
		detail := fmt.Sprintf("must be an integer from 1 to %d", maxPage)
		page.Limit, err = strconv.Atoi(limit)
		switch {
		case strconv.Itoa(page.Limit) != limit && !errors.Is(err, strconv.ErrRange):
			reject("/limit", httpjson.CodeInvalidFormat, detail)
		case page.Limit < 1 || page.Limit > maxPage:
			reject("/limit", httpjson.CodeOutOfRange, detail)
		}
	}
	if after, given := query["after"]; given {
		if page.After, err = parseID(after); err != nil {
			reject("/after", httpjson.CodeInvalidFormat, "must be an id of this list")
		}
	}
	if len(errs) > 0 {
		return page, &httpjson.InvalidError{Fields: errs}
	}
	return page, nil
}
