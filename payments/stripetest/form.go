package stripetest

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A form has the parameters of a request. done rejects those that the endpoint did not
// read.
type form struct {
	values  url.Values
	read    map[string]bool
	problem *apiError // the first one found
}

// parseForm returns the parameters of body and query by their full names, such as
// created[gte].
func parseForm(body, query string) (*form, *apiError) {
	raw := strings.Trim(body+"&"+query, "&")
	values, err := url.ParseQuery(raw)
	f := &form{values: values, read: make(map[string]bool)}
	if err != nil {
		return f, invalidRequest(http.StatusBadRequest, "", "", "The parameters are not form-encoded.")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) > 1 && !strings.HasSuffix(name, "[]") {
			return f, invalidRequest(http.StatusBadRequest, "", name, "Received the parameter more than once: "+name)
		}
	}
	return f, nil
}

// canonical is independent of the order of the parameters.
func (f *form) canonical() string {
	return f.values.Encode()
}

func (f *form) done() *apiError {
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !f.read[name] {
			unknown = append(unknown, name)
		}
	}
	switch len(unknown) {
	case 0:
		return f.problem
	case 1:
		return invalidRequest(http.StatusBadRequest, "parameter_unknown", unknown[0],
			"Received unknown parameter: "+unknown[0])
	default:
		return invalidRequest(http.StatusBadRequest, "parameter_unknown", unknown[0],
			"Received unknown parameters: "+strings.Join(unknown, ", "))
	}
}

func (f *form) fail(code, param, message string) {
	if f.problem == nil {
		f.problem = invalidRequest(http.StatusBadRequest, code, param, message)
	}
}

func (f *form) given(name string) (string, bool) {
	f.read[name] = true
	if !f.values.Has(name) {
		return "", false
	}
	value := f.values.Get(name)
	if value == "" {
		f.fail("parameter_invalid_empty", name, fmt.Sprintf("You passed an empty string for '%[1]s'. We assume empty "+
			"values are an attempt to unset a parameter; however '%[1]s' cannot be unset. You should remove '%[1]s' "+
			"from your request or supply a non-empty value.", name))
	}
	return value, value != ""
}

func (f *form) require(name string) {
	if !f.values.Has(name) {
		f.fail("parameter_missing", name, "Missing required param: "+name+".")
	}
}

func (f *form) text(name string, limit int) string {
	value, _ := f.given(name)
	if utf8.RuneCountInString(value) > limit {
		f.fail("parameter_invalid_string", name, fmt.Sprintf("Invalid string: %s; must be at most %d characters",
			abbreviate(value), limit))
	}
	return value
}

func (f *form) ref(name string) string {
	return f.text(name, 255)
}

func (f *form) integer(name string) (int64, bool) {
	value, ok := f.given(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		f.fail("parameter_invalid_integer", name, "Invalid integer: "+abbreviate(value))
	}
	return n, err == nil
}

// limit is the number of objects on a page.
func (f *form) limit() int {
	limit, limited := f.integer("limit")
	switch {
	case !limited:
		limit = 10
	case limit < 1:
		f.fail("parameter_invalid_integer", "limit", "This value must be greater than or equal to 1.")
	case limit > 100:
		f.fail("parameter_invalid_integer", "limit", "This value must be less than or equal to 100.")
	}
	return int(limit)
}

func (f *form) flag(name string) bool {
	value, ok := f.given(name)
	if ok && value != "true" && value != "false" {
		f.fail("", name, "Invalid boolean: "+abbreviate(value))
	}
	return value == "true"
}

func (f *form) choice(name string, allowed ...string) string {
	value, ok := f.given(name)
	if ok && !slices.Contains(allowed, value) {
		f.fail("", name, fmt.Sprintf("Invalid %s: must be one of %s", name, strings.Join(allowed, ", ")))
	}
	return value
}

// metadata reads metadata[…] with Stripe's limits. Empty values are dropped.
func (f *form) metadata() map[string]string {
	metadata := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		rest, nested := strings.CutPrefix(name, "metadata[")
		key, closed := strings.CutSuffix(rest, "]")
		if !nested || !closed || key == "" {
			continue
		}
		f.read[name] = true
		value := f.values.Get(name)
		switch {
		case strings.ContainsAny(key, "[]"):
			f.fail("", "metadata", "Metadata keys cannot contain square brackets.")
		case utf8.RuneCountInString(key) > 40:
			f.fail("", "metadata", "Metadata keys must be at most 40 characters long: "+abbreviate(key))
		case utf8.RuneCountInString(value) > 500:
			f.fail("", name, "Metadata values must be at most 500 characters long.")
		case value != "":
			metadata[key] = value
		}
	}
	if len(metadata) > 50 {
		f.fail("", "metadata", "Metadata can have at most 50 keys.")
	}
	return metadata
}

func abbreviate(value string) string {
	if runes := []rune(value); len(runes) > 40 {
		return string(runes[:20]) + "..." + string(runes[len(runes)-10:])
	}
	return value
}
