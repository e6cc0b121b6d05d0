package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

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
