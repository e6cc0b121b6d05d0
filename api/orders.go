package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/plainjson"
	"example.com/orders-api/orders"
)

// create serves POST of a resource.
func (a accountAPI) create(execute executeFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error { return a.serve(w, r, execute) }
}

func (a accountAPI) createRefund(w http.ResponseWriter, r *http.Request) error {
	order, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	return a.serve(w, r, func(ctx context.Context, req orders.Request) (idempotency.Result, error) {
		return a.service.Refund(ctx, order, req)
	})
}

// readFunc reads what a GET asks for, and returns it as JSON.
type readFunc func(r *http.Request) ([]byte, error)

// read responds with the result of next, which has a permit and readTimeout. The response
// is sent without a permit, because a client may be slow.
func (a accountAPI) read(next readFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body []byte
		err := a.limiter.Do(r.Context(), accountID(r.Context()), func(ctx context.Context) (err error) {
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

// get reads the resource with the id in the path.
func get[T any](read func(ctx context.Context, accountID, id uuid.UUID) (T, error)) readFunc {
	return func(r *http.Request) ([]byte, error) {
		return encode(read(r.Context(), accountID(r.Context()), pathID(r, "id")))
	}
}

func (a accountAPI) getRefund(r *http.Request) ([]byte, error) {
	return encode(a.service.GetRefund(r.Context(), accountID(r.Context()), pathID(r, "id"), pathID(r, "refund_id")))
}

func (a accountAPI) listOrders(r *http.Request) ([]byte, error) {
	limit, after, err := parsePage(r.URL.RawQuery, "an order")
	if err != nil {
		return nil, err
	}
	body, err := encodePage(limit, a.service.List(r.Context(), accountID(r.Context()), limit+1, after))
	if errors.Is(err, orders.ErrNotFound) {
		err = invalidQuery("/after", orders.CodeNotFound, "must be the id of an order of this account")
	}
	return body, err
}

func (a accountAPI) listRefunds(r *http.Request) ([]byte, error) {
	order, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	limit, after, err := parsePage(r.URL.RawQuery, "a refund")
	if err != nil {
		return nil, err
	}
	return encodePage(limit, a.service.ListRefunds(r.Context(), accountID(r.Context()), order, limit+1, after))
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
		if more = err == nil && (n == limit || page.Len() >= maxPageSize); more {
			break
		}
		encoded, err := encode(object, err)
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

// encode takes the results of a read.
func encode[T any](object T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return plainjson.Marshal(object)
}

const queryUnreadable = "the query string cannot be read"

// parsePage accepts only limit and after. what is the kind of object.
func parsePage(rawQuery, what string) (limit int, after uuid.UUID, err error) {
	var errs []orders.FieldError
	reject := func(pointer, code, detail string) {
		errs = append(errs, orders.FieldError{Pointer: pointer, Code: code, Detail: detail})
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		reject("", orders.CodeInvalidFormat, queryUnreadable)
	}
	limit = defaultPage
	if query.Has("limit") {
		detail := fmt.Sprintf("must be an integer from 1 to %d", maxPage)
		limit, err = strconv.Atoi(query.Get("limit"))
		switch {
		case strconv.Itoa(limit) != query.Get("limit") && !errors.Is(err, strconv.ErrRange):
			reject("/limit", orders.CodeInvalidFormat, detail)
		case limit < 1 || limit > maxPage:
			reject("/limit", orders.CodeOutOfRange, detail)
		}
	}
	if query.Has("after") {
		if after, err = parseID(query.Get("after")); err != nil {
			reject("/after", orders.CodeInvalidFormat, "must be the id of "+what)
		}
	}
	for _, name := range []string{"limit", "after"} {
		if len(query[name]) > 1 {
			reject("/"+name, orders.CodeDuplicateParameter, "must be given once")
		}
		delete(query, name)
	}
	if len(query) > 0 {
		reject("", orders.CodeUnknownParameter, "the query string has unknown parameters; limit and after are known")
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
		return invalidQuery("", orders.CodeInvalidFormat, queryUnreadable)
	case len(query) > 0:
		return invalidQuery("", orders.CodeUnknownParameter, "the query string has parameters, and this operation has none")
	}
	return nil
}

func invalidQuery(pointer, code, detail string) error {
	return &orders.ValidationError{Fields: []orders.FieldError{{Pointer: pointer, Code: code, Detail: detail}}}
}

// pathID returns the id in the path of a read, or uuid.Nil, which no object has.
func pathID(r *http.Request, name string) uuid.UUID {
	id, _ := parseID(chi.URLParam(r, name))
	return id
}

// parseID accepts the canonical form of a UUID only; uuid.Parse accepts four forms.
func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || id.String() != s || id == uuid.Nil {
		return uuid.Nil, errNotFound
	}
	return id, nil
}
