package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/client"
)

type contract struct {
	doc    *openapi3.T
	router routers.Router
	valid  *sync.Map // see once
}

// variable values differ between otherwise equal exchanges.
var variable = map[string]*regexp.Regexp{
	"UUID":        regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
	"time":        regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`),
	"random text": regexp.MustCompile(`\b[A-Z2-7]{26}\b`), // of keys and request ids
	"intent":      regexp.MustCompile(`\bpi_[0-9A-Za-z]+`),
	"refund":      regexp.MustCompile(`\bre_[0-9A-Za-z]+`),
	"detail":      regexp.MustCompile(`"detail":"[^"\\]+"`),
}

// once skips an exchange that equals a valid one: compiling its schemas takes
// milliseconds.
func (c contract) once(exchange string, validate func() error) error {
	if len(exchange) > 16<<10 {
		return withoutSchema(validate()) // the search would take longer
	}
	for form, pattern := range variable {
		exchange = pattern.ReplaceAllString(exchange, form)
	}
	if _, valid := c.valid.Load(exchange); valid {
		return nil
	}
	if err := validate(); err != nil {
		return withoutSchema(err)
	}
	c.valid.Store(exchange, true)
	return nil
}

func newContract() (contract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(ordersapi.Spec)
	if err != nil {
		return contract{}, err
	}
	closeResponses(doc)
	doc.Servers = nil
	router, err := legacy.NewRouter(doc) // validates the document and its examples
	return contract{doc: doc, router: router, valid: &sync.Map{}}, withoutSchema(err)
}

// closeResponses makes the schemas of responses strict: in tests, an addition must be
// documented. The published schemas are open for later versions.
func closeResponses(doc *openapi3.T) {
	for _, schema := range append(responseSchemas(doc), schemasIn(doc.Components.Schemas["Problem"])...) {
		if schema.Type.Includes("object") && schema.AdditionalProperties.Has == nil && schema.AdditionalProperties.Schema == nil {
			schema.AdditionalProperties.Has = new(bool) // false
		}
		if values, extensible := schema.Extensions["x-extensible-enum"].([]any); extensible {
			schema.Enum = slices.Clone(values)
			if schema.Type.Includes("null") {
				schema.Enum = append(schema.Enum, nil)
			}
		}
	}
}

func responseSchemas(doc *openapi3.T) []*openapi3.Schema {
	var schemas []*openapi3.Schema
	for _, path := range doc.Paths.Map() {
		for _, operation := range path.Operations() {
			for _, response := range operation.Responses.Map() {
				for _, content := range response.Value.Content {
					schemas = append(schemas, schemasIn(content.Schema)...)
				}
				for _, h := range response.Value.Headers {
					schemas = append(schemas, schemasIn(h.Value.Schema)...)
				}
			}
		}
	}
	return schemas
}

func schemasIn(ref *openapi3.SchemaRef) []*openapi3.Schema {
	var schemas []*openapi3.Schema
	_ = ref.WalkSubtree(func(_ string, schema *openapi3.SchemaRef) error { // its only errors are those of the function
		schemas = append(schemas, schema.Value)
		return nil
	})
	return schemas
}

var loadContract = sync.OnceValues(func() (contract, error) {
	for _, text := range []string{"text/html", "text/javascript", "image/svg+xml", "application/yaml"} {
		openapi3filter.RegisterBodyDecoder(text, openapi3filter.FileBodyDecoder)
	}
	return newContract()
})

// openContract returns the contract, which [TestMain] has found to be valid.
func openContract(t testing.TB) contract {
	t.Helper()
	c, err := loadContract()
	require.NoError(t, err)
	return c
}

func validate(schema *openapi3.Schema, value any) error {
	return withoutSchema(schema.VisitJSON(value, openapi3.EnableJSONSchema2020(), openapi3.EnableFormatValidation()))
}

// withoutSchema removes the schema, which has hundreds of lines, from the text of an error.
func withoutSchema(err error) error {
	if err == nil {
		return nil
	}
	text, _, _ := strings.Cut(err.Error(), "\nSchema:")
	return errors.New(text)
}

func validatorOptions() *openapi3filter.Options {
	return &openapi3filter.Options{
		IncludeResponseStatus: true,
		AuthenticationFunc: func(_ context.Context, input *openapi3filter.AuthenticationInput) error {
			scheme, _, _ := strings.Cut(input.RequestValidationInput.Request.Header.Get("Authorization"), " ")
			if !strings.EqualFold(scheme, input.SecurityScheme.Scheme) {
				return errors.New("no credentials")
			}
			return nil
		},
	}
}

// check returns how a response violates the contract. A request that the contract forbids
// must have been rejected.
func (c contract) check(req *http.Request, body []byte, got response) error {
	if err := checkHeaders(got); err != nil {
		return err
	}
	slug, err := c.checkProblem(got)
	if err != nil {
		return err
	}
	if err := checkReadDetail(req, got); err != nil {
		return err
	}

	sent := req.Clone(req.Context())
	if sent.Method == http.MethodHead {
		sent.Method = http.MethodGet
	}
	sent.URL.Path = sent.URL.EscapedPath() // an encoded slash separates nothing
	sent.Body = io.NopCloser(bytes.NewReader(body))
	route, params, err := c.router.FindRoute(sent)
	if err != nil || strings.HasSuffix(sent.URL.Path, "/") || slices.Contains(slices.Collect(maps.Values(params)), "") {
		// No such operation. The validator's router ignores a trailing slash, and accepts
		// an empty parameter.
		if req.Method == http.MethodOptions && got.status == http.StatusNoContent {
			return nil // see the introduction
		}
		if got.status != 401 && got.status != 404 && got.status != 405 {
			return fmt.Errorf("status %d where the contract has nothing", got.status)
		}
		return nil
	}
	for name, value := range params {
		if params[name], err = url.PathUnescape(value); err != nil {
			return err
		}
	}
	input := &openapi3filter.RequestValidationInput{Request: sent, PathParams: params, Route: route, Options: validatorOptions()}
	if got.status < 400 || got.status > 499 {
		header := sent.Header.Clone()
		scheme, _, _ := strings.Cut(header.Get("Authorization"), " ")
		header.Set("Authorization", scheme) // all that validatorOptions reads of it
		err := c.once(fmt.Sprint(sent.Method, sent.URL.RequestURI(), header, string(body)), func() error {
			return openapi3filter.ValidateRequest(req.Context(), input)
		})
		if err != nil {
			return fmt.Errorf("status %d for a request that the contract does not allow: %w", got.status, err)
		}
	}
	documented := route.Operation.Responses.Status(got.status)
	if documented == nil { // the default response is for other versions
		return fmt.Errorf("%s does not document status %d", route.Operation.OperationID, got.status)
	}
	headers := []string{got.header.Get("Content-Type"), got.header.Get("Content-Encoding")}
	for _, name := range slices.Sorted(maps.Keys(documented.Value.Headers)) {
		headers = append(headers, name, got.header.Get(name))
	}
	err = c.once(fmt.Sprint(req.Method, route.Operation.OperationID, got.status, headers, string(got.body)), func() error {
		return openapi3filter.ValidateResponse(req.Context(), (&openapi3filter.ResponseValidationInput{
			RequestValidationInput: input,
			Status:                 got.status,
			Header:                 got.header,
			Options:                &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: slug != "" || req.Method == http.MethodHead || got.header.Get("Content-Encoding") != ""},
		}).SetBodyBytes(got.body))
	})
	if err != nil {
		return fmt.Errorf("response of %s: %w", route.Operation.OperationID, err)
	}
	of := promise(documented.Ref, route.Operation.OperationID, strconv.Itoa(got.status))
	coverage.record(of)
	if err := checkDocumentedHeaders(of, documented.Value.Headers, got.header); err != nil {
		return err
	}
	if slug != "" && !slices.ContainsFunc(jsonExamples(documented.Value.Content), func(e namedExample) bool {
		return e.value.(map[string]any)["type"] == "/problems/"+slug
	}) {
		return fmt.Errorf("%s has no example of %s", of, slug)
	}
	return checkExamples(route.Operation, documented, body, got)
}

// A GET has no idempotency key, so its problem must not mention one.
func checkReadDetail(req *http.Request, got response) error {
	var p problem
	if req.Method != http.MethodGet || got.status < 400 || strings.HasPrefix(req.URL.Path, "/v1/idempotency-keys/") {
		return nil
	}
	if err := json.Unmarshal(got.body, &p); err != nil {
		return err
	}
	if strings.Contains(strings.ReplaceAll(p.Detail, "API key", ""), "key") {
		return fmt.Errorf("the detail of a GET's problem is about a key: %q", p.Detail)
	}
	return nil
}

func checkDocumentedHeaders(of string, documented openapi3.Headers, got http.Header) error {
	for name := range got {
		switch name {
		case "Accept-Ranges", "Content-Encoding", "Content-Length", "Content-Security-Policy", "Content-Type",
			"Connection", "Date", "Referrer-Policy", "Vary", "X-Content-Type-Options":
		default:
			if !slices.ContainsFunc(slices.Collect(maps.Keys(documented)), func(d string) bool { return strings.EqualFold(d, name) }) {
				return fmt.Errorf("%s does not document the header %s", of, name)
			}
		}
	}
	for name, h := range documented {
		if got.Get(name) != "" {
			coverage.record(promise(h.Ref, of, "header", name))
		}
	}
	return nil
}

type contractTransport struct {
	base    http.RoundTripper
	secrets *secrets
}

func (c *contractTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	contract, err := loadContract()
	if err != nil {
		return nil, err
	}
	c.secrets.add(req.Header["Idempotency-Key"]...)
	c.secrets.add(req.Header["Authorization"]...)

	var body []byte
	if req.Body != nil {
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}
	sent := req.Clone(req.Context())
	if len(body) > 0 {
		sent.Body = io.NopCloser(bytes.NewReader(body))
	}
	resp, err := c.base.RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	got, err := readResponse(resp)
	if err != nil {
		return nil, err
	}
	if err := contract.check(req, body, got); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(got.body))
	return resp, nil
}

func checkHeaders(got response) error {
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff",
		"Referrer-Policy":        "no-referrer",
	} {
		if value := got.header.Get(name); value != want {
			return fmt.Errorf("header %s is %q", name, value)
		}
	}
	policy := got.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; ") || !strings.Contains(policy, "frame-ancestors 'none'") {
		return fmt.Errorf("content security policy %q", policy)
	}
	if cache := got.header.Get("Cache-Control"); cache != "no-store" && cache != "no-cache" {
		return fmt.Errorf("header Cache-Control is %q", cache)
	}
	for _, name := range []string{"Server", "Set-Cookie", "Access-Control-Allow-Origin"} {
		if value, there := got.header[name]; there {
			return fmt.Errorf("header %s: %q", name, value)
		}
	}
	if got.header.Get("X-Request-Id") == "" {
		return errors.New("no X-Request-Id")
	}
	return nil
}

// checkProblem validates a problem with the schema of its type, which has its status, retry
// and outcomes, and the open one, which [TestContract_problemDetails] finds in all operations.
func (c contract) checkProblem(got response) (slug string, err error) {
	if got.status < 400 {
		return "", nil
	}
	if contentType := got.header.Get("Content-Type"); contentType != "application/problem+json" {
		return "", fmt.Errorf("status %d as %q", got.status, contentType)
	}
	if got.head {
		return "", nil
	}
	var p problem
	if err := json.Unmarshal(got.body, &p); err != nil {
		return "", err
	}
	slug = p.slug()
	waits := p.Retry == client.RetrySameKey && slug != "internal-error"
	switch {
	case p.Status != got.status:
		err = fmt.Errorf("status %d, and %d in the body", got.status, p.Status)
	case (got.header.Get("Retry-After") != "") != waits:
		err = fmt.Errorf("Retry-After %q", got.header.Get("Retry-After"))
	case got.status == http.StatusMethodNotAllowed && got.header.Get("Allow") == "":
		err = errors.New("no Allow")
	case p.RequestID == "": // stored
	case p.RequestID != got.header.Get("X-Request-Id"):
		err = fmt.Errorf("request_id %q", p.RequestID)
	case got.header.Get("Idempotent-Replayed") != "":
		err = errors.New("a replay of what is not stored")
	}
	if err == nil {
		err = c.once(string(got.body), func() error { return c.checkProblemSchema(slug, got.body) })
	}
	if err != nil {
		return slug, fmt.Errorf("problem %q: %w", slug, err)
	}
	coverage.record("problem " + slug)
	return slug, nil
}

func (c contract) checkProblemSchema(slug string, body []byte) error {
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	own, known := c.problems()[slug]
	if !known {
		return errors.New("not in the contract")
	}
	if err := validate(own, value); err != nil {
		return err
	}
	return validate(c.doc.Components.Schemas["ProblemDetails"].Value, value)
}

// problems returns the schemas of the problem types by slug, as a generated client finds
// them.
func (c contract) problems() map[string]*openapi3.Schema {
	schemas := map[string]*openapi3.Schema{}
	for problemType, variant := range c.doc.Components.Schemas["Problem"].Value.Discriminator.Mapping {
		schemas[strings.TrimPrefix(problemType, "/problems/")] = c.doc.Components.Schemas[path.Base(variant.Ref)].Value
	}
	return schemas
}

type problem struct{ client.Problem }

func (p problem) slug() string { return strings.TrimPrefix(p.Type, "/problems/") }

func (p problem) pointers() []string {
	var pointers []string
	for _, e := range p.Errors {
		pointers = append(pointers, e.Pointer)
	}
	return pointers
}
