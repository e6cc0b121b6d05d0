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
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	ordersapi "example.com/orders-api"
)

type contract struct {
	doc    *openapi3.T
	router routers.Router
	valid  *sync.Map // problems without their request id
}

func newContract() (contract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(ordersapi.Spec)
	if err != nil {
		return contract{}, err
	}
	closeResponses(doc)
	doc.Servers = nil // the tests' servers have ports of their own
	router, err := legacy.NewRouter(doc)
	return contract{doc: doc, router: router, valid: &sync.Map{}}, err
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
	for _, text := range []string{"text/html", "text/javascript", "application/yaml"} {
		openapi3filter.RegisterBodyDecoder(text, openapi3filter.FileBodyDecoder)
	}
	return newContract()
})

var problems = map[string]struct {
	status int
	retry  string
	header string // that comes with it
	stored bool

	pending  bool // retry may be same-key with Retry-After instead
	outcomes []string
}{
	"idempotency-key-missing":     {status: 400, retry: "corrected", outcomes: []string{"none"}},
	"idempotency-key-invalid":     {status: 400, retry: "corrected", outcomes: []string{"unknown"}},
	"malformed-request":           {status: 400, retry: "corrected", outcomes: []string{"none", "unknown"}},
	"unauthorized":                {status: 401, retry: "corrected", header: "WWW-Authenticate", outcomes: []string{"none", "unknown"}},
	"payment-declined":            {status: 402, retry: "new-key", stored: true, outcomes: []string{"final"}},
	"not-found":                   {status: 404, retry: "never", outcomes: []string{"none", "unknown"}},
	"method-not-allowed":          {status: 405, retry: "never", header: "Allow", outcomes: []string{"none", "unknown"}},
	"idempotency-key-in-progress": {status: 409, retry: "same-key", header: "Retry-After", outcomes: []string{"unknown"}},
	"too-large":                   {status: 413, retry: "corrected", outcomes: []string{"none", "unknown"}},
	"unsupported-media-type":      {status: 415, retry: "corrected", outcomes: []string{"none", "unknown"}},
	"idempotency-key-reused":      {status: 422, retry: "never", outcomes: []string{"final", "unknown"}},
	"idempotency-key-expired":     {status: 422, retry: "never", outcomes: []string{"final"}},
	"validation-failed":           {status: 422, retry: "corrected", outcomes: []string{"none", "unknown"}},
	"order-not-refundable":        {status: 422, retry: "never", pending: true, outcomes: []string{"none"}},
	"refund-exceeds-remaining":    {status: 422, retry: "corrected", outcomes: []string{"none"}},
	"payment-refused":             {status: 422, retry: "new-key", stored: true, outcomes: []string{"final"}},
	"rate-limited":                {status: 429, retry: "same-key", header: "Retry-After", outcomes: []string{"none", "unknown"}},
	"internal-error":              {status: 500, retry: "same-key", outcomes: []string{"unknown"}},
	"payment-outcome-unknown":     {status: 503, retry: "same-key", header: "Retry-After", outcomes: []string{"unknown"}},
	"temporarily-unavailable":     {status: 503, retry: "same-key", header: "Retry-After", outcomes: []string{"none", "unknown"}},
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
	slug, err := checkProblem(got)
	if err != nil {
		return err
	}
	coverage.record("problem " + slug)
	if err := c.checkProblemSchema(slug, got); err != nil {
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
		if err := openapi3filter.ValidateRequest(req.Context(), input); err != nil {
			return fmt.Errorf("status %d for a request that the contract does not allow: %w", got.status, err)
		}
	}
	documented := route.Operation.Responses.Status(got.status)
	if documented == nil { // the default response is for other versions
		return fmt.Errorf("%s does not document status %d", route.Operation.OperationID, got.status)
	}
	err = openapi3filter.ValidateResponse(req.Context(), (&openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 got.status,
		Header:                 got.header,
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: slug != "" || req.Method == http.MethodHead || got.header.Get("Content-Encoding") != ""},
	}).SetBodyBytes(got.body))
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

// checkProblemSchema validates a problem with the schema of its type and the open one,
// which [TestContract_problemDetails] finds in all operations. Both are compiled each time,
// which takes milliseconds, so equal problems are checked once.
func (c contract) checkProblemSchema(slug string, got response) error {
	if slug == "" {
		return nil
	}
	content := strings.ReplaceAll(string(got.body), got.header.Get("X-Request-Id"), "")
	if _, valid := c.valid.Load(content); valid {
		return nil
	}
	var body any
	if err := json.Unmarshal(got.body, &body); err != nil {
		return err
	}
	schemas := c.doc.Components.Schemas
	own := schemas["Problem"].Value.Discriminator.Mapping["/problems/"+slug].Ref
	for _, name := range []string{path.Base(own), "ProblemDetails"} {
		if err := schemas[name].Value.VisitJSON(body, openapi3.EnableJSONSchema2020(), openapi3.EnableFormatValidation()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	c.valid.Store(content, true)
	return nil
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

func checkProblem(got response) (slug string, err error) {
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
	want, known := problems[slug]
	if want.pending && p.Retry == "same-key" {
		want.retry, want.header = "same-key", "Retry-After"
	}
	switch {
	case !known:
		err = errors.New("not in the table of problems in contract_test.go")
	case p.Status != got.status || want.status != got.status:
		err = fmt.Errorf("status %d, and %d in the body", got.status, p.Status)
	case p.Retry != want.retry:
		err = fmt.Errorf("retry %q", p.Retry)
	case !slices.Contains(want.outcomes, p.Outcome):
		err = fmt.Errorf("outcome %q", p.Outcome)
	case p.Title == "" || p.Detail == "":
		err = errors.New("no title or detail")
	case want.header != "" && got.header.Get(want.header) == "":
		err = fmt.Errorf("no %s", want.header)
	case (got.header.Get("Retry-After") != "") != (want.header == "Retry-After"):
		err = fmt.Errorf("Retry-After %q", got.header.Get("Retry-After"))
	case !want.stored && p.RequestID != got.header.Get("X-Request-Id"):
		err = fmt.Errorf("request_id %q", p.RequestID)
	case want.stored && p.RequestID != "":
		err = errors.New("a stored response with a request_id")
	case !want.stored && got.header.Get("Idempotent-Replayed") != "":
		err = errors.New("a replay of what is not stored")
	}
	if err != nil {
		return slug, fmt.Errorf("problem %q: %w", slug, err)
	}
	return slug, nil
}

type problem struct {
	Type, Title, Detail, Retry, Code string
	Outcome                          string
	Status                           int
	RequestID                        string `json:"request_id"`
	DeclineCode                      string `json:"decline_code"`
	OrderID                          string `json:"order_id"`
	Remaining                        int64
	Errors                           []struct{ Pointer, Code, Detail string }
}

func (p problem) slug() string { return strings.TrimPrefix(p.Type, "/problems/") }

func (p problem) pointers() []string {
	pointers := make([]string, len(p.Errors))
	for i, e := range p.Errors {
		pointers[i] = e.Pointer
	}
	return pointers
}
