package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/orders-api/orders"
)

// ordersAPI holds the handlers of /v1/orders.
type ordersAPI struct {
	service    *orders.Service
	idempotent idempotentAPI
}

// create is POST /v1/orders.
func (a ordersAPI) create(w http.ResponseWriter, r *http.Request) error {
	return a.idempotent.serve(w, r, a.service.Create)
}

// get is GET /v1/orders/{id}.
func (a ordersAPI) get(w http.ResponseWriter, r *http.Request) error {
	id, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return errNotFound
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	order, err := a.service.Get(ctx, accountID(ctx), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, order)
}

// defaultPage is the default number of orders or refunds in a list.
const defaultPage = 20

// list is GET /v1/orders.
func (a ordersAPI) list(w http.ResponseWriter, r *http.Request) error {
	limit, after, err := parsePage(r.URL.RawQuery, "an order")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	page, more, err := a.service.List(ctx, accountID(ctx), limit, after)
	if errors.Is(err, orders.ErrNotFound) {
		return &orders.ValidationError{Fields: []orders.FieldError{{Pointer: "/after", Code: orders.CodeNotFound, Detail: "must be the id of an order of this account"}}}
	}
	if err != nil {
		return err
	}
	return writePage(w, page, more)
}

// writePage writes a page of a list.
func writePage[T any](w http.ResponseWriter, page []T, more bool) error {
	return writeJSON(w, http.StatusOK, struct {
		Data    []T  `json:"data"`
		HasMore bool `json:"has_more"`
	}{page, more})
}

// parsePage reads the parameters limit and after, and rejects all others. what is the
// kind of object in the list.
func parsePage(rawQuery, what string) (limit int, after uuid.UUID, err error) {
	limit = defaultPage
	var errs []orders.FieldError
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		errs = append(errs, errQueryUnreadable)
	}
	for _, name := range []string{"limit", "after"} {
		values, given := query[name]
		delete(query, name)
		if !given {
			continue
		}
		switch value := values[0]; {
		case len(values) > 1:
			errs = append(errs, orders.FieldError{Pointer: "/" + name, Code: orders.CodeDuplicateParameter, Detail: "must be given once"})
		case name == "limit":
			if limit, err = strconv.Atoi(value); err != nil || limit < 1 || limit > orders.MaxPage || strconv.Itoa(limit) != value {
				code := orders.CodeOutOfRange
				if strconv.Itoa(limit) != value && !errors.Is(err, strconv.ErrRange) {
					code = orders.CodeInvalidFormat
				}
				errs = append(errs, orders.FieldError{Pointer: "/limit", Code: code, Detail: fmt.Sprintf("must be an integer from 1 to %d", orders.MaxPage)})
			}
		default:
			if after, err = parseID(value); err != nil {
				errs = append(errs, orders.FieldError{Pointer: "/after", Code: orders.CodeInvalidFormat, Detail: "must be the id of " + what})
			}
		}
	}
	if len(query) > 0 {
		errs = append(errs, orders.FieldError{Pointer: "", Code: orders.CodeUnknownParameter, Detail: "the query string has unknown parameters; limit and after are known"})
	}
	if len(errs) > 0 {
		return 0, uuid.Nil, &orders.ValidationError{Fields: errs}
	}
	return limit, after, nil
}

// checkQuery rejects a query string with parameters, for an operation that has none.
func checkQuery(rawQuery string) error {
	query, err := url.ParseQuery(rawQuery)
	switch {
	case err != nil:
		return &orders.ValidationError{Fields: []orders.FieldError{errQueryUnreadable}}
	case len(query) > 0:
		return &orders.ValidationError{Fields: []orders.FieldError{
			{Pointer: "", Code: orders.CodeUnknownParameter, Detail: "the query string has parameters, and this operation has none"},
		}}
	default:
		return nil
	}
}

// errQueryUnreadable is the error of a malformed query string.
var errQueryUnreadable = orders.FieldError{Pointer: "", Code: orders.CodeInvalidFormat, Detail: "the query string cannot be read"}

// parseID accepts the canonical form of a UUID only; uuid.Parse accepts four forms.
func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || id.String() != s || id == uuid.Nil {
		return uuid.Nil, errNotFound
	}
	return id, nil
}
