package api

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"strings"

	"example.com/orders-api/operations"
	"example.com/orders-api/operations/validation"
)

// A list ends at maxPage objects or at maxPageSize, so it has up to 300 KiB.
const (
	defaultPage = 20
	maxPage     = 100
	maxPageSize = 256 << 10 // bytes
)

func encodePage(limit int, objects iter.Seq2[any, error]) ([]byte, error) {
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

func encode(object any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return operations.EncodeJSON(object)
}

const queryUnreadable = "the query string cannot be read"

// parsePage accepts only limit, after and filters.
func parsePage(rawQuery string, filters ...string) (p operations.Page, err error) {
	var errs []validation.Field
	reject := func(pointer, code, detail string) {
		errs = append(errs, validation.Field{Pointer: pointer, Code: code, Detail: detail})
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		reject("", validation.CodeInvalidFormat, queryUnreadable)
	}
	p.Limit = defaultPage
	if query.Has("limit") {
		detail := fmt.Sprintf("must be an integer from 1 to %d", maxPage)
		p.Limit, err = strconv.Atoi(query.Get("limit"))
		switch {
		case strconv.Itoa(p.Limit) != query.Get("limit") && !errors.Is(err, strconv.ErrRange):
			reject("/limit", validation.CodeInvalidFormat, detail)
		case p.Limit < 1 || p.Limit > maxPage:
			reject("/limit", validation.CodeOutOfRange, detail)
		}
	}
	if query.Has("after") {
		if p.After, err = parseID(query.Get("after")); err != nil {
			reject("/after", validation.CodeInvalidFormat, "must be an id of this list")
		}
	}
	known := append([]string{"limit", "after"}, filters...)
	p.Filters = map[string]string{}
	for _, name := range filters {
		if query.Has(name) {
			p.Filters[name] = query.Get(name)
		}
	}
	for _, name := range known {
		if len(query[name]) > 1 {
			reject("/"+name, validation.CodeDuplicateParameter, "must be given once")
		}
		delete(query, name)
	}
	if len(query) > 0 {
		reject("", validation.CodeUnknownParameter, "the query string has unknown parameters; known are "+strings.Join(known, ", "))
	}
	if len(errs) > 0 {
		return operations.Page{}, &validation.Error{Fields: errs}
	}
	return p, nil
}
