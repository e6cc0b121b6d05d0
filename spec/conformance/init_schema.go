package main

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3" //nolint:depguard // init reads a document, not the bodies of requests
)

// What init reads from schemas, and the values that it derives from them.

const deepest = 8 // schemas can contain themselves

func encode(value any) string {
	text, _ := json.Marshal(value) // it comes from a document in JSON or YAML
	return string(text)
}

// copied returns a copy as JSON has it.
func copied(value any) any {
	var result any
	_ = json.Unmarshal([]byte(encode(value)), &result)
	return result
}

func propertiesOf(ref *openapi3.SchemaRef, depth int) openapi3.Schemas {
	if ref == nil || ref.Value == nil || depth > deepest {
		return nil
	}
	all := maps.Clone(ref.Value.Properties)
	for _, part := range slices.Concat(ref.Value.AllOf, ref.Value.OneOf, ref.Value.AnyOf) {
		for name, property := range propertiesOf(part, depth+1) {
			if all == nil {
				all = make(openapi3.Schemas)
			}
			if all[name] == nil {
				all[name] = property
			}
		}
	}
	return all
}

func hasProperty(ref *openapi3.SchemaRef, name string, depth int) bool {
	return propertiesOf(ref, depth)[name] != nil
}

func itemsOf(ref *openapi3.SchemaRef) *openapi3.SchemaRef {
	if ref == nil || ref.Value == nil {
		return nil
	}
	return ref.Value.Items
}

// idPointer returns where an object has its id: in id, data.id, or a member such as order_id.
func idPointer(ref *openapi3.SchemaRef, example any) string {
	properties := propertiesOf(ref, 0)
	object, _ := example.(map[string]any)
	names := slices.Concat(slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(object)))
	if slices.Contains(names, "id") {
		return "/id"
	}
	for _, outer := range []string{"data", "order", "payment", "result"} {
		inner, _ := object[outer].(map[string]any)
		if _, ok := inner["id"]; ok || hasProperty(properties[outer], "id", 0) {
			return "/" + outer + "/id"
		}
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_id") || strings.HasSuffix(name, "Id") || strings.EqualFold(name, "uuid") {
			return "/" + name
		}
	}
	return ""
}

// generate returns a value of a schema with its required members.
func generate(ref *openapi3.SchemaRef, depth int) any {
	if ref == nil || ref.Value == nil || depth > deepest {
		return nil
	}
	s := ref.Value
	if value := exampleOf(nil, nil, ref); value != nil {
		return value
	}
	for _, alternatives := range []openapi3.SchemaRefs{s.OneOf, s.AnyOf} {
		if len(alternatives) > 0 {
			return generate(alternatives[0], depth+1)
		}
	}
	switch {
	case len(s.AllOf) > 0 || s.Type.Permits("object") && !s.Type.IsEmpty() || s.Type.IsEmpty() && len(s.Properties) > 0:
		object := make(map[string]any)
		for _, part := range s.AllOf {
			if members, ok := generate(part, depth+1).(map[string]any); ok {
				maps.Copy(object, members)
			}
		}
		for _, name := range s.Required {
			object[name] = generate(s.Properties[name], depth+1)
		}
		return object
	case s.Type.Is("array"):
		list := make([]any, 0)
		for range max(s.MinItems, 1) {
			list = append(list, generate(s.Items, depth+1))
		}
		return list
	case s.Type.Is("integer"), s.Type.Is("number"):
		return numberOf(s)
	case s.Type.Is("boolean"):
		return false
	default:
		return textOf(s)
	}
}

func numberOf(s *openapi3.Schema) float64 {
	value := 1.0
	if s.Min != nil {
		value = math.Max(value, *s.Min)
	}
	if s.ExclusiveMin.Value != nil {
		value = math.Max(value, *s.ExclusiveMin.Value+1)
	}
	if s.ExclusiveMin.Bool != nil && *s.ExclusiveMin.Bool && s.Min != nil {
		value = math.Max(value, *s.Min+1)
	}
	if s.Max != nil {
		value = math.Min(value, *s.Max)
	}
	if s.MultipleOf != nil {
		value = math.Ceil(value / *s.MultipleOf) * *s.MultipleOf
	}
	return value
}

func textOf(s *openapi3.Schema) string {
	switch s.Format {
	case "uuid":
		return "8f14e45f-ceea-467f-a9d4-1f6b7c3e2d10"
	case "email":
		return "ada@example.com"
	case "date":
		return "2030-01-02"
	case "date-time":
		return "2030-01-02T03:04:05Z"
	case "uri", "url":
		return "https://example.com"
	}
	value := "text"
	for uint64(len(value)) < s.MinLength {
		value += "x"
	}
	if s.MaxLength != nil && uint64(len(value)) > *s.MaxLength {
		value = value[:*s.MaxLength]
	}
	return value
}

func accepts(schema *openapi3.Schema, value any) bool {
	return schema == nil || schema.VisitJSON(value, openapi3.EnableFormatValidation()) == nil
}

// leaf is a value of a body, with its schema.
type leaf struct {
	pointer string
	value   any
	schema  *openapi3.Schema
	set     func(any)
}

// leaves returns the values of a body, numbers first: another quantity is another valid
// request more often than another name.
func leaves(schema *openapi3.Schema, body any) []leaf {
	var all []leaf
	eachLeaf(openapi3.NewSchemaRef("", schema), body, "", func(l leaf) { all = append(all, l) })
	slices.SortStableFunc(all, func(a, b leaf) int {
		_, first := a.value.(float64)
		_, second := b.value.(float64)
		switch {
		case first == second:
			return strings.Compare(a.pointer, b.pointer)
		case first:
			return -1
		}
		return 1
	})
	return all
}

func eachLeaf(ref *openapi3.SchemaRef, value any, pointer string, visit func(leaf)) {
	eachValue(value, pointer, func(pointer string, value any, set func(any)) {
		schema := ref
		for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
			if items := itemsOf(schema); items != nil {
				schema = items
			} else {
				schema = propertiesOf(schema, 0)[name]
			}
		}
		l := leaf{pointer: pointer, value: value, set: set, schema: &openapi3.Schema{}}
		if schema != nil && schema.Value != nil {
			l.schema = schema.Value
		}
		visit(l)
	})
}

// vary returns a body with another valid value, or why there is none.
func vary(schema *openapi3.Schema, body any) (changed, why string) {
	body = copied(body)
	if !accepts(schema, body) {
		why = "the example does not satisfy its own schema"
		schema = nil
	}
	for _, l := range leaves(schema, body) {
		for _, other := range otherValues(l) {
			l.set(other)
			text, valid := encode(body), accepts(schema, body)
			l.set(l.value)
			if valid {
				return text, ""
			}
		}
	}
	return "", why
}

func otherValues(l leaf) []any {
	var values []any
	for _, value := range l.schema.Enum {
		if value != l.value {
			values = append(values, value)
		}
	}
	switch value := l.value.(type) {
	case float64:
		return append(values, value+1, value-1)
	case string:
		// An id or a date would name something that does not exist.
		if l.schema.Format == "" && l.schema.Pattern == "" && len(l.schema.Enum) == 0 && !strings.HasSuffix(l.pointer, "id") && !strings.HasSuffix(l.pointer, "Id") {
			return append(values, value+"2")
		}
	case bool:
		return append(values, !value)
	}
	return values
}

// violate returns a body with one value that its schema rejects.
func violate(schema *openapi3.Schema, body any) string {
	if schema == nil {
		return ""
	}
	body = copied(body)
	for _, l := range leaves(schema, body) {
		for _, other := range invalidValues(l) {
			l.set(other)
			text, valid := encode(body), accepts(schema, body)
			l.set(l.value)
			if !valid {
				return text
			}
		}
	}
	object, _ := body.(map[string]any)
	for _, name := range schema.Required {
		value, there := object[name]
		delete(object, name)
		if there {
			text := encode(body)
			object[name] = value
			return text
		}
	}
	return ""
}

func invalidValues(l leaf) []any {
	s := l.schema
	var values []any
	switch value := l.value.(type) {
	case float64:
		if s.Min != nil {
			values = append(values, *s.Min-1)
		}
		if s.ExclusiveMin.Value != nil {
			values = append(values, *s.ExclusiveMin.Value)
		}
		if s.Max != nil {
			values = append(values, *s.Max+1)
		}
	case string:
		if len(s.Enum) > 0 || s.Format != "" || s.Pattern != "" {
			values = append(values, "not valid")
		}
		if s.MinLength > 0 {
			values = append(values, "")
		}
		if s.MaxLength != nil && *s.MaxLength < 10_000 {
			values = append(values, value+strings.Repeat("x", int(*s.MaxLength)))
		}
	}
	return values
}
