package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
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

const (
	defaultPage = 20
	maxPage     = 100
)

type page[T any] struct {
	Data    []T  `json:"data"`
	HasMore bool `json:"has_more"`
}

// readQuery returns the parameters of a query. Each must have a known name and be given once.
func readQuery(rawQuery string, known ...string) (map[string]string, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, httpjson.Invalid("", httpjson.CodeInvalidFormat, "the query string cannot be read")
	}
	values := map[string]string{}
	for name, all := range query {
		switch {
		case !slices.Contains(known, name):
			return nil, httpjson.Invalid("", httpjson.CodeUnknownParameter,
				"the query string has unknown parameters; known are: "+cmp.Or(strings.Join(known, ", "), "none"))
		case len(all) > 1:
			return nil, httpjson.Invalid("/"+name, httpjson.CodeDuplicateParameter, "must be given once")
		}
		values[name] = all[0]
	}
	return values, nil
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
