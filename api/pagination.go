package api

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"example.com/orders-api/internal/httpjson"
)

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
