package stripetest

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

type form struct {
	values  url.Values
	read    map[string]bool
	problem *apiError // the first one found
}

func parseForm(body, query string) (*form, *apiError) {
	values, err := url.ParseQuery(strings.Trim(body+"&"+query, "&"))
	f := &form{values: values, read: make(map[string]bool)}
	if err != nil {
		return f, invalidRequest(http.StatusBadRequest, "", "", "The parameters are not form-encoded.")
	}
	for name, given := range values {
		if len(given) > 1 {
			return f, invalidRequest(http.StatusBadRequest, "", name, "Received the parameter more than once: "+name)
		}
	}
	return f, nil
}

// done rejects parameters that were not read.
func (f *form) done() *apiError {
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !f.read[name] {
			return invalidRequest(http.StatusBadRequest, "parameter_unknown", name, "Received unknown parameter: "+name)
		}
	}
	return f.problem
}

func (f *form) fail(code, param, message string) {
	if f.problem == nil {
		f.problem = invalidRequest(http.StatusBadRequest, code, param, message)
	}
}

func (f *form) require(name string) {
	if !f.values.Has(name) {
		f.fail("parameter_missing", name, "Missing required param: "+name+".")
	}
}

func (f *form) text(name string) string {
	f.read[name] = true
	value := f.values.Get(name)
	if f.values.Has(name) && value == "" {
		f.fail("parameter_invalid_empty", name, "You passed an empty string for '"+name+"'.")
	}
	return value
}

// texts reads name[0], name[1], and so on.
func (f *form) texts(name string, most int) (values []string) {
	for i := 0; f.values.Has(fmt.Sprintf("%s[%d]", name, i)); i++ {
		values = append(values, f.text(fmt.Sprintf("%s[%d]", name, i)))
	}
	if len(values) > most {
		f.fail("", name, fmt.Sprintf("Array %s exceeded maximum %d allowed elements.", name, most))
	}
	return values
}

func (f *form) integer(name string) (n int64, given bool) {
	value := f.text(name)
	if value == "" {
		return 0, false
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		f.fail("parameter_invalid_integer", name, "Invalid integer: "+value)
	}
	return n, err == nil
}

func (f *form) limit() int {
	limit, given := f.integer("limit")
	if !given {
		return 10
	}
	if limit < 1 || limit > 100 {
		f.fail("parameter_invalid_integer", "limit", "This value must be between 1 and 100.")
	}
	return int(limit)
}

func (f *form) flag(name string) bool { return f.choice(name, "true", "false") == "true" }

func (f *form) choice(name string, allowed ...string) string {
	value := f.text(name)
	if value != "" && !slices.Contains(allowed, value) {
		f.fail("", name, fmt.Sprintf("Invalid %s: must be one of %s", name, strings.Join(allowed, ", ")))
	}
	return value
}

// metadata reads metadata[…]. Empty values are dropped.
func (f *form) metadata() map[string]string {
	metadata := make(map[string]string)
	for name, given := range f.values {
		rest, nested := strings.CutPrefix(name, "metadata[")
		key, closed := strings.CutSuffix(rest, "]")
		if !nested || !closed || key == "" || strings.ContainsAny(key, "[]") {
			continue
		}
		f.read[name] = true
		if given[0] != "" {
			metadata[key] = given[0]
		}
	}
	return metadata
}
