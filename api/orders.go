package api

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/orders-api/internal/plainjson"
	"example.com/orders-api/orders"
)

type ordersAPI struct {
	service    *orders.Service
	idempotent idempotentAPI
}

func (a ordersAPI) create(w http.ResponseWriter, r *http.Request) error {
	return a.idempotent.serve(w, r, a.service.Create)
}

func (a ordersAPI) get(r *http.Request) ([]byte, error) {
	id, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return nil, errNotFound
	}
	order, err := a.service.Get(r.Context(), accountID(r.Context()), id)
	if err != nil {
		return nil, err
	}
	return plainjson.Marshal(order)
}

func (a ordersAPI) list(r *http.Request) ([]byte, error) {
	limit, after, err := parsePage(r.URL.RawQuery, "an order")
	if err != nil {
		return nil, err
	}
	body, err := encodePage(limit, a.service.List(r.Context(), accountID(r.Context()), limit+1, after))
	if errors.Is(err, orders.ErrNotFound) {
		err = &orders.ValidationError{Fields: []orders.FieldError{{Pointer: "/after", Code: orders.CodeNotFound, Detail: "must be the id of an order of this account"}}}
	}
	return body, err
}

// A list ends at maxPage objects or at maxPageSize, so it has up to 300 KiB.
const (
	defaultPage = 20
	maxPage     = 100
	maxPageSize = 256 << 10 // bytes
)

// encodePage encodes one object at a time until the page is full.
func encodePage[T any](limit int, objects iter.Seq2[T, error]) ([]byte, error) {
	page := bytes.NewBufferString(`{"data":[`)
	n, more := 0, false
	for object, err := range objects {
		if err != nil {
			return nil, err
		}
		if more = n == limit || page.Len() >= maxPageSize; more {
			break
		}
		encoded, err := plainjson.Marshal(object)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			page.WriteByte(',')
		}
		page.Write(encoded)
		n++
	}
	fmt.Fprintf(page, `],"has_more":%t}`, more)
	return page.Bytes(), nil
}

// parsePage accepts only limit and after. what is the kind of object.
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
			if limit, err = strconv.Atoi(value); err != nil || limit < 1 || limit > maxPage || strconv.Itoa(limit) != value {
				code := orders.CodeOutOfRange
				if strconv.Itoa(limit) != value && !errors.Is(err, strconv.ErrRange) {
					code = orders.CodeInvalidFormat
				}
				errs = append(errs, orders.FieldError{Pointer: "/limit", Code: code, Detail: fmt.Sprintf("must be an integer from 1 to %d", maxPage)})
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

var errQueryUnreadable = orders.FieldError{Pointer: "", Code: orders.CodeInvalidFormat, Detail: "the query string cannot be read"}

// parseID accepts the canonical form of a UUID only; uuid.Parse accepts four forms.
func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || id.String() != s || id == uuid.Nil {
		return uuid.Nil, errNotFound
	}
	return id, nil
}
