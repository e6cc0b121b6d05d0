package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
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
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	ordersapi "example.com/orders-api"
)

type contract struct {
	doc     *openapi3.T
	router  routers.Router
	schemas *schemas
}

var loadContract = sync.OnceValues(func() (contract, error) {
	text, err := document()
	if err != nil {
		return contract{}, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return contract{}, err
	}
	closeResponses(doc)
	doc.Servers = nil
	// The router validates the document. For its examples it would compile a schema each time.
	router, err := legacy.NewRouter(doc, openapi3.DisableExamplesValidation())
	if err != nil {
		return contract{}, withoutSchema(err)
	}
	schemas, err := newSchemas(doc)
	return contract{doc, router, schemas}, err
})

// document returns openapi.yaml with the paths of openapi.service.yaml, which refers to it.
func document() ([]byte, error) {
	var both, service map[string]any
	operators, err := os.ReadFile("openapi.service.yaml")
	err = errors.Join(
		err,
		yaml.Unmarshal(ordersapi.Spec, &both),
		yaml.Unmarshal(bytes.ReplaceAll(operators, []byte("../openapi.yaml#/"), []byte("#/")), &service))
	if err != nil {
		return nil, err
	}
	merge(both, service)
	return yaml.Marshal(both)
}

func merge(into, from map[string]any) {
	for name, value := range from {
		inner, _ := into[name].(map[string]any)
		if more, isMap := value.(map[string]any); isMap && inner != nil {
			merge(inner, more)
		} else {
			into[name] = value
		}
	}
}

func openContract(t testing.TB) contract {
	t.Helper()
	c, err := loadContract()
	require.NoError(t, err)
	return c
}

// closeResponses makes the schemas of responses strict: in tests, an addition must be
// documented. The published schemas are open for later versions.
func closeResponses(doc *openapi3.T) {
	for _, schema := range responseSchemas(doc) {
		if schema.Type.Includes("object") && schema.AdditionalProperties.Has == nil && schema.AdditionalProperties.Schema == nil {
			schema.AdditionalProperties.Has = new(bool)
		}
		if schema.Const != nil {
			schema.Enum = []any{schema.Const} // for headers, see check
		}
		if schema.Examples != nil { // all values of this version
			schema.Enum = slices.Clone(schema.Examples)
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
	_ = ref.WalkSubtree(func(_ string, schema *openapi3.SchemaRef) error {
		schemas = append(schemas, schema.Value)
		return nil
	})
	return schemas
}

func withoutSchema(err error) error {
	if err == nil {
		return nil
	}
	text, _, _ := strings.Cut(err.Error(), "\nSchema:")
	return errors.New(text)
}

// check returns how a response violates the contract. The contract also requires that a request
// which it does not allow is rejected.
func (c contract) check(req *http.Request, body []byte, got response) error {
	if err := checkHeaders(got); err != nil {
		return err
	}
	slug, err := c.checkProblem(got)
	if err != nil {
		return err
	}
	sent := req.Clone(req.Context())
	if sent.Method == http.MethodHead {
		sent.Method = http.MethodGet
	}
	sent.URL.Path = sent.URL.EscapedPath() // FindRoute would split a parameter at a decoded slash
	sent.Body = io.NopCloser(bytes.NewReader(body))
	route, params, err := c.router.FindRoute(sent)
	if err != nil || strings.HasSuffix(sent.URL.Path, "/") || slices.Contains(slices.Collect(maps.Values(params)), "") {
		// The contract has no such path. FindRoute finds some of these, because it ignores a
		// trailing slash and accepts an empty parameter.
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
	// For OpenAPI 3.1, the validator compiles the schemas of parameters and headers anew for each
	// message, which is slow. They have no keyword that 3.0 lacks.
	spec, filtered := *route.Spec, *route
	spec.OpenAPI = "3.0.3"
	filtered.Spec = &spec
	options := &openapi3filter.Options{
		IncludeResponseStatus:   true,
		ExcludeRequestBody:      true,
		ExcludeResponseBody:     true,
		AuthenticationFunc:      openapi3filter.NoopAuthenticationFunc,
		SchemaValidationOptions: []openapi3.SchemaValidationOption{openapi3.EnableFormatValidation()},
	}
	input := &openapi3filter.RequestValidationInput{Request: sent, PathParams: params, Route: &filtered, Options: options}
	if got.status < 400 || got.status > 499 {
		err := openapi3filter.ValidateRequest(req.Context(), input)
		if expected := route.Operation.RequestBody; err == nil && expected != nil {
			err = c.schemas.check(expected.Value.Content, req.Header.Get("Content-Type"), body)
		}
		if err != nil {
			return fmt.Errorf("status %d for a request that the contract does not allow: %w", got.status, withoutSchema(err))
		}
	}
	documented := route.Operation.Responses.Status(got.status)
	if documented == nil {
		return fmt.Errorf("%s does not document status %d", route.Operation.OperationID, got.status)
	}
	err = openapi3filter.ValidateResponse(req.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 got.status,
		Header:                 got.header,
		Options:                options,
	})
	if err == nil && slug == "" && req.Method != http.MethodHead && got.header.Get("Content-Encoding") == "" {
		err = c.schemas.check(documented.Value.Content, got.header.Get("Content-Type"), got.body)
	}
	if err != nil {
		return fmt.Errorf("response of %s: %w", route.Operation.OperationID, withoutSchema(err))
	}
	of := promise(documented.Ref, route.Operation.OperationID, strconv.Itoa(got.status))
	coverage.record(of)
	if err := checkDocumentedHeaders(of, documented.Value.Headers, got.header); err != nil {
		return err
	}
	return checkDocumentedProblem(of, documented.Value.Content, slug)
}

func checkDocumentedHeaders(of string, documented openapi3.Headers, got http.Header) error {
	for name := range got {
		switch name {
		case "Accept-Ranges", "Content-Encoding", "Content-Length", "Content-Type",
			"Connection", "Date", "Vary", "X-Content-Type-Options":
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
	c.secrets.add(req.Header["Idempotency-Key"]...)
	c.secrets.add(req.Header["Authorization"]...)

	var body []byte
	if req.Body != nil {
		var err error
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
	documented, err := loadContract()
	if err == nil {
		err = documented.check(req, body, got)
	}
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(got.body))
	return resp, nil
}

func checkHeaders(got response) error {
	if value := got.header.Get("X-Content-Type-Options"); value != "nosniff" {
		return fmt.Errorf("header X-Content-Type-Options is %q", value)
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

// schemas validates bodies. It compiles each schema once: openapi3filter compiles it for each
// message, which took more time than the tests that send them.
type schemas struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[*openapi3.Schema]*jsonschema.Schema
}

// contractURL is the base of the contract's references.
const contractURL = "contract:/openapi.json"

func newSchemas(doc *openapi3.T) (*schemas, error) {
	s := &schemas{compiler: jsonschema.NewCompiler(), compiled: map[*openapi3.Schema]*jsonschema.Schema{}}
	s.compiler.AssertFormat()
	s.compiler.UseRegexpEngine(compilePattern)
	return s, s.add(contractURL, doc)
}

var unicodeEscape = regexp.MustCompile(`\\u([0-9A-F]{4})`)

// compilePattern translates the only escape of JavaScript in the contract that Go lacks.
func compilePattern(pattern string) (jsonschema.Regexp, error) {
	return regexp.Compile(unicodeEscape.ReplaceAllString(pattern, `\x{$1}`))
}

func (s *schemas) add(url string, document json.Marshaler) error {
	text, err := document.MarshalJSON()
	if err != nil {
		return err
	}
	text = bytes.ReplaceAll(text, []byte(`"$ref":"#/`), []byte(`"$ref":"`+contractURL+`#/`))
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.compiler.AddResource(url, value)
}

func (s *schemas) compile(schema *openapi3.Schema) (*jsonschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if compiled := s.compiled[schema]; compiled != nil {
		return compiled, nil
	}
	url := fmt.Sprintf("contract:/%d.json", len(s.compiled))
	if err := s.add(url, schema); err != nil {
		return nil, err
	}
	compiled, err := s.compiler.Compile(url)
	s.compiled[schema] = compiled
	return compiled, err
}

func (s *schemas) validate(schema *openapi3.Schema, value any) error {
	compiled, err := s.compile(schema)
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}

// check validates a body of one of the documented types. Text is one string.
func (s *schemas) check(documented openapi3.Content, contentType string, body []byte) error {
	if len(documented) == 0 {
		return nil
	}
	media := documented.Get(contentType)
	if media == nil {
		return fmt.Errorf("content type %q is not documented", contentType)
	}
	if !strings.Contains(strings.ToLower(contentType), "json") {
		return s.validate(media.Schema.Value, string(body))
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return s.validate(media.Schema.Value, value)
}
