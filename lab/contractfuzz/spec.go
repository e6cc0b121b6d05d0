package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

type node = map[string]any

type contract struct {
	operations map[string]*operation // by operationId
	allowed    map[string][]string   // the methods of each path
	notFound   *response
	notAllowed *response
}

// operation is one operation. The fuzzer adds those of methods that are not
// allowed and of unknown addresses.
type operation struct {
	id, method, path string
	secured          bool
	body             node // nil without a body
	bodySchema       *jsonschema.Schema
	query            map[string]node // by name
	responses        map[string]*response
}

type response struct {
	headers map[string]header             // by canonical name
	content map[string]*jsonschema.Schema // by media type
}

type header struct {
	required, integer, boolean bool
	schema                     *jsonschema.Schema
}

// loader keeps the first error.
type loader struct {
	root     any
	compiler *jsonschema.Compiler
	compiled int
	err      error
}

// readContract reads both documents as one: the second refers to the first.
func readContract(folder string) (*contract, error) {
	both := node{}
	for _, name := range []string{"openapi.yaml", "api/openapi.service.yaml"} {
		text, err := os.ReadFile(filepath.Join(folder, name)) //nolint:gosec // named on the command line
		if err != nil {
			return nil, err
		}
		var document node
		if err := yaml.Unmarshal(bytes.ReplaceAll(text, []byte("../openapi.yaml#/"), []byte("#/")), &document); err != nil {
			return nil, err
		}
		merge(both, document)
	}
	return loadContract(both)
}

func merge(into, from node) {
	for name, value := range from {
		if inner, more := object(into[name]), object(value); inner != nil && more != nil {
			merge(inner, more)
		} else {
			into[name] = value
		}
	}
}

func loadContract(tree node) (*contract, error) {
	encoded, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	l := &loader{compiler: jsonschema.NewCompiler()}
	if l.root, err = jsonschema.UnmarshalJSON(bytes.NewReader(encoded)); err != nil {
		return nil, err
	}
	l.compiler.DefaultDraft(jsonschema.Draft2020)
	l.compiler.AssertFormat()
	l.compiler.UseRegexpEngine(func(pattern string) (jsonschema.Regexp, error) { return regexp.Compile(goPattern(pattern)) })

	document := object(l.resolve(l.root, 0))
	shared := object(object(document["components"])["responses"])
	c := &contract{
		operations: map[string]*operation{},
		allowed:    map[string][]string{},
		notFound:   l.response(shared["NotFound"]),
	}
	for path, item := range object(document["paths"]) {
		for method, definition := range object(item) {
			if method = strings.ToUpper(method); object(definition)["operationId"] == nil {
				continue // parameters of the whole path, for example
			}
			operation := l.operation(method, path, object(definition))
			c.operations[operation.id] = operation
			c.allowed[path] = append(c.allowed[path], method)
			if method == "GET" {
				c.allowed[path] = append(c.allowed[path], "HEAD")
			}
		}
		slices.Sort(c.allowed[path])
	}
	// A 405 belongs to no operation. The default response documents its headers as
	// optional, because proxies use it too.
	c.notAllowed = l.response(shared["UnexpectedProblem"])
	for _, name := range []string{"Allow", "X-Request-Id"} {
		h := c.notAllowed.headers[name]
		h.required = true
		c.notAllowed.headers[name] = h
	}
	return c, l.err
}

func (l *loader) operation(method, path string, definition node) *operation {
	o := &operation{method: method, path: path, secured: definition["security"] == nil, query: map[string]node{}, responses: map[string]*response{}}
	o.id, _ = definition["operationId"].(string)
	for _, p := range list(definition["parameters"]) {
		if p := object(p); p["in"] == "query" {
			o.query[p["name"].(string)] = object(p["schema"])
		}
	}
	if content := object(object(definition["requestBody"])["content"]); content != nil {
		o.body = object(object(content["application/json"])["schema"])
		o.bodySchema = l.compile(o.body)
	}
	for status, definition := range object(definition["responses"]) {
		o.responses[status] = l.response(definition)
	}
	return o
}

func (l *loader) response(definition any) *response {
	r := &response{headers: map[string]header{}, content: map[string]*jsonschema.Schema{}}
	for name, h := range object(object(definition)["headers"]) {
		schema := object(object(h)["schema"])
		r.headers[name] = header{
			required: object(h)["required"] == true,
			integer:  schema["type"] == "integer",
			boolean:  schema["type"] == "boolean",
			schema:   l.compile(schema),
		}
	}
	for mediaType, content := range object(object(definition)["content"]) {
		schema := object(content)["schema"]
		if mediaType == "application/problem+json" {
			schema = l.problems(object(content))
		}
		closeObjects(schema, true)
		r.content[mediaType] = l.compile(schema)
	}
	return r
}

// problems returns the schema of a problem with a type of the response's examples. The published
// schema allows any problem.
func (l *loader) problems(content node) node {
	examples := []any{content["example"]}
	for _, example := range object(content["examples"]) {
		examples = append(examples, object(example)["value"])
	}
	var types []any
	for _, example := range examples {
		if name, ok := object(example)["type"]; ok {
			types = append(types, name)
		}
	}
	details := maps.Clone(object(l.resolve(l.target("#/components/schemas/ProblemDetails"), 0)))
	details["additionalProperties"] = false
	return node{"allOf": []any{details, node{"properties": node{"type": node{"enum": types}}, "additionalProperties": true}}}
}

func (l *loader) compile(schema any) *jsonschema.Schema {
	l.compiled++
	url := fmt.Sprintf("http://contract/%d", l.compiled)
	l.keep(l.compiler.AddResource(url, schema))
	compiled, err := l.compiler.Compile(url)
	l.keep(err)
	return compiled
}

func (l *loader) keep(err error) {
	if l.err == nil {
		l.err = err
	}
}

// resolve replaces each $ref by a copy of its target. Members beside a schema's $ref
// apply too, so they become an allOf.
func (l *loader) resolve(value any, depth int) any {
	if depth > 100 {
		l.keep(fmt.Errorf("recursive $ref"))
		return nil
	}
	switch value := value.(type) {
	case []any:
		all := make([]any, len(value))
		for i := range value {
			all[i] = l.resolve(value[i], depth+1)
		}
		return all
	case node:
		all := make(node, len(value))
		for name := range value {
			if name != "$ref" {
				all[name] = l.resolve(value[name], depth+1)
			}
		}
		ref, referring := value["$ref"].(string)
		if !referring {
			return all
		}
		target := l.resolve(l.target(ref), depth+1)
		delete(all, "description")
		delete(all, "summary")
		if len(all) == 0 {
			return target
		}
		all["allOf"] = append(list(all["allOf"]), target)
		return all
	default:
		return value
	}
}

// target returns the value of a JSON pointer.
func (l *loader) target(ref string) any {
	path, inside := strings.CutPrefix(ref, "#/")
	value := l.root
	for part := range strings.SplitSeq(path, "/") {
		value = object(value)[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	if !inside || value == nil {
		l.keep(fmt.Errorf("$ref %q has no target", ref))
	}
	return value
}

// closeObjects forbids undocumented members and unlisted values of open enumerations. The
// published schemas are open for clients, but the server must send nothing undocumented.
// A part of an allOf or oneOf stays open, because the outer schema is closed.
func closeObjects(schema any, outer bool) {
	s, ok := schema.(node)
	if !ok {
		return
	}
	if values := list(s["examples"]); values != nil {
		if slices.Contains(list(s["type"]), any("null")) && !slices.Contains(values, nil) {
			values = append(values, nil)
		}
		s["enum"] = values
	}
	for _, name := range []string{"allOf", "oneOf", "anyOf"} {
		for _, part := range list(s[name]) {
			closeObjects(part, false)
		}
	}
	for _, name := range []string{"if", "then", "else"} {
		closeObjects(s[name], false)
	}
	for _, property := range object(s["properties"]) {
		closeObjects(property, true)
	}
	closeObjects(s["items"], true)
	closeObjects(s["additionalProperties"], true)
	composed := s["properties"] != nil || s["allOf"] != nil || s["oneOf"] != nil || s["anyOf"] != nil
	if outer && composed && s["additionalProperties"] == nil && s["unevaluatedProperties"] == nil {
		s["unevaluatedProperties"] = false
	}
}

var unicodeEscape = regexp.MustCompile(`\\u([0-9A-Fa-f]{4})`)

// goPattern converts a pattern of ECMA 262 for package regexp.
func goPattern(pattern string) string { return unicodeEscape.ReplaceAllString(pattern, `\x{$1}`) }

func object(value any) node { o, _ := value.(node); return o }
func list(value any) []any  { l, _ := value.([]any); return l }

// number returns a numeric keyword of a schema.
func number(value any, otherwise int) int {
	if n, ok := value.(json.Number); ok {
		if i, err := strconv.Atoi(n.String()); err == nil {
			return i
		}
	}
	return otherwise
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
