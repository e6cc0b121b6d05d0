package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// request is one request. Its target is not encoded again.
type request struct {
	operation *operation
	method    string
	target    string
	header    http.Header
	body      []byte
}

func (r request) set(name string, values ...string) request {
	r.header = r.header.Clone()
	if r.header[name] = values; len(values) == 0 {
		delete(r.header, name)
	}
	return r
}

func (r request) with(body []byte) request { r.body = body; return r }

type exchange struct {
	request
	status   int
	header   http.Header // of the response
	reply    []byte
	document node // the decoded reply, nil if it is no JSON object
	resent   bool // because of a 429 or 503
}

// text returns a member of the reply, or "".
func (x *exchange) text(member string) string {
	if x == nil {
		return ""
	}
	text, _ := x.document[member].(string)
	return text
}

// slug is the last part of a problem's type.
func (x *exchange) slug() string { return strings.TrimPrefix(x.text("type"), "/problems/") }

func (x *exchange) replayed() bool { return x.header.Get("Idempotent-Replayed") == "true" }

func (x *exchange) requiresAction() bool {
	return x.status == http.StatusAccepted && x.text("state") == "requires_action"
}

// final reports whether the response is stored under the key.
func (x *exchange) final() bool {
	return x.status == http.StatusCreated || x.slug() == "payment-declined" || x.slug() == "payment-refused"
}

// transportHeaders are undocumented headers, with the reason.
var transportHeaders = map[string]string{
	"Accept-Ranges":          "of files; the contract promises no ranges",
	"Cache-Control":          "for caches; documented except for responses that belong to no operation",
	"Connection":             "of HTTP/1.1",
	"Content-Encoding":       "of the negotiation of gzip",
	"Content-Length":         "of HTTP/1.1",
	"Content-Type":           "documented as content",
	"Date":                   "of every HTTP server",
	"Server":                 "of a proxy",
	"Vary":                   "of the negotiation of gzip",
	"X-Content-Type-Options": "for browsers",
}

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// check returns the rules of the contract that the response violates. It decodes the
// reply.
func (c *contract) check(x *exchange) (broken []string) {
	report := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	if x.status == http.StatusInternalServerError {
		report("status 500")
	}
	documented := x.operation.responses[strconv.Itoa(x.status)]
	if documented == nil && x.status == http.StatusMethodNotAllowed {
		documented = c.notAllowed // belongs to no operation
	}
	if documented == nil {
		report("status %d is not documented", x.status)
		return broken
	}
	for name, documented := range documented.headers {
		values := x.header.Values(name)
		if len(values) == 0 {
			if documented.required {
				report("header %s is missing", name)
			}
			continue
		}
		if err := documented.check(values); err != nil {
			report("header %s: %v", name, err)
		}
	}
	for name := range x.header {
		if _, known := transportHeaders[name]; !known && !containsFold(documented.headers, name) {
			report("header %s is not documented", name)
		}
	}
	if err := x.decode(documented); err != nil {
		report("body: %v", err)
	}
	if id := x.request.header.Get("X-Request-Id"); requestIDPattern.MatchString(id) && x.header.Get("X-Request-Id") != id {
		report("X-Request-Id is not that of the request")
	}
	if sent := x.header.Get("Idempotency-Key"); sent != "" && sent != strings.Trim(x.request.header.Get("Idempotency-Key"), " \t") {
		report("Idempotency-Key is not that of the request")
	}
	if x.header.Get("Preference-Applied") != "" && x.request.header["Prefer"] == nil {
		report("Preference-Applied without Prefer")
	}
	if x.replayed() && !x.final() {
		report("replay of a response that is not stored")
	}
	if x.document != nil && x.header.Get("Content-Type") == "application/problem+json" {
		if fmt.Sprint(x.document["status"]) != strconv.Itoa(x.status) {
			report("member status is %v", x.document["status"])
		}
		if id := x.text("request_id"); id != "" && id != x.header.Get("X-Request-Id") {
			report("request_id is not X-Request-Id")
		}
		if (x.header.Get("Retry-After") != "") && x.text("retry") != "same-key" {
			report("Retry-After with retry %q", x.text("retry"))
		}
	}
	return broken
}

func containsFold(headers map[string]header, name string) bool {
	for documented := range headers {
		if strings.EqualFold(documented, name) {
			return true
		}
	}
	return false
}

func (h header) check(lines []string) error {
	var value any = lines[0]
	switch {
	case len(lines) > 1:
		return fmt.Errorf("%d lines", len(lines))
	case h.integer:
		value = json.Number(lines[0])
		if _, err := strconv.Atoi(lines[0]); err != nil {
			return err
		}
	case h.boolean:
		value = lines[0] == "true"
		if lines[0] != "true" && lines[0] != "false" {
			return fmt.Errorf("%q is not a boolean", lines[0])
		}
	}
	return h.schema.Validate(value)
}

func (x *exchange) decode(documented *response) error {
	if len(documented.content) == 0 {
		if len(x.reply) > 0 {
			return errors.New("the response is documented without content")
		}
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(x.header.Get("Content-Type"))
	schema, ok := documented.content[mediaType]
	if err != nil || !ok {
		return fmt.Errorf("content type %q is not documented", x.header.Get("Content-Type"))
	}
	if x.method == http.MethodHead {
		if len(x.reply) > 0 {
			return errors.New("the response to HEAD has a body")
		}
		return nil
	}
	reply := x.reply
	if x.header.Get("Content-Encoding") == "gzip" {
		unzip, err := gzip.NewReader(bytes.NewReader(reply))
		if err != nil {
			return err
		}
		if reply, err = io.ReadAll(unzip); err != nil {
			return err
		}
	}
	if !strings.HasSuffix(mediaType, "json") {
		return schema.Validate(string(reply))
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(reply))
	if err != nil {
		return err
	}
	x.document = object(value)
	return schema.Validate(value)
}

// sameResponse returns the difference between two responses to one request under one key.
func (x *exchange) sameResponse(first *exchange) error {
	switch {
	case x.status != first.status:
		return fmt.Errorf("status %d differs from the first status, %d", x.status, first.status)
	case !bytes.Equal(x.reply, first.reply):
		return fmt.Errorf("the body differs from the first body:\n%s", first.reply)
	}
	for _, name := range []string{"Content-Type", "Location"} {
		if x.header.Get(name) != first.header.Get(name) {
			return fmt.Errorf("header %s is %q, but %q in the first response", name, x.header.Get(name), first.header.Get(name))
		}
	}
	return nil
}

// String never contains the API key.
func (x *exchange) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "  > %s %s\n", x.method, short(x.target))
	for _, name := range sortedKeys(x.request.header) {
		for _, value := range x.request.header[name] {
			if name == "Authorization" {
				value = "(" + strconv.Itoa(len(value)) + " bytes)"
			}
			fmt.Fprintf(&out, "  > %s: %s\n", name, short(value))
		}
	}
	if x.body != nil {
		fmt.Fprintf(&out, "  > %q\n", short(string(x.body)))
	}
	fmt.Fprintf(&out, "  < %d\n", x.status)
	for _, name := range sortedKeys(x.header) {
		for _, value := range x.header[name] {
			fmt.Fprintf(&out, "  < %s: %s\n", name, short(value))
		}
	}
	fmt.Fprintf(&out, "  < %q\n", short(string(x.reply)))
	return out.String()
}

func short(text string) string {
	if len(text) > 1500 {
		return fmt.Sprintf("%s… (%d bytes)", text[:1500], len(text))
	}
	return text
}
