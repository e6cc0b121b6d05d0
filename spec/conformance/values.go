package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// decode keeps the digits of numbers.
func decode(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return value, nil
}

// at returns the value at a JSON pointer, and whether there is one.
func at(value any, pointer string) (any, bool) {
	if pointer == "" {
		return value, true
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch container := value.(type) {
		case map[string]any:
			next, ok := container[name]
			if !ok {
				return nil, false
			}
			value = next
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(container) {
				return nil, false
			}
			value = container[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// variant is a body that was derived from another one.
type variant struct{ name, body string }

const maxVariants = 24

// changedValues returns bodies that differ from the given one in one value each.
func changedValues(body string) []variant {
	value, err := decode([]byte(body))
	if err != nil {
		return nil
	}
	var variants []variant
	eachValue(value, "", func(pointer string, old any, set func(any)) {
		var changed any
		switch old := old.(type) {
		case string:
			changed = old + "x"
		case json.Number:
			number, err := strconv.ParseInt(old.String(), 10, 64)
			if err != nil {
				return
			}
			changed = number + 1
		case bool:
			changed = !old
		default:
			return
		}
		set(changed)
		if text, err := json.Marshal(value); err == nil && len(variants) < maxVariants {
			variants = append(variants, variant{pointer, string(text)})
		}
		set(old)
	})
	return variants
}

// eachValue visits each string, number, truth value and null in a fixed order.
func eachValue(value any, pointer string, visit func(pointer string, value any, set func(any))) {
	next := func(name string, child any, set func(any)) {
		switch child.(type) {
		case map[string]any, []any:
			eachValue(child, pointer+"/"+name, visit)
		default:
			visit(pointer+"/"+name, child, set)
		}
	}
	switch container := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(container)) {
			next(name, container[name], func(v any) { container[name] = v })
		}
	case []any:
		for i := range container {
			next(strconv.Itoa(i), container[i], func(v any) { container[i] = v })
		}
	}
}

// serialisations returns bodies with equal values.
func serialisations(body string) []variant {
	value, err := decode([]byte(body))
	if _, object := value.(map[string]any); err != nil || !object {
		return nil
	}
	variants := []variant{
		{"other order and white space", serialise(value, notation{spaces: true})},
		{"escapes in strings", serialise(value, notation{escapes: true})},
	}
	if other := serialise(value, notation{decimals: true}); other != serialise(value, notation{}) {
		variants = append(variants, variant{"other notation of numbers", other})
	}
	return variants
}

type notation struct{ spaces, escapes, decimals bool }

// serialise writes the members of objects in descending order.
func serialise(value any, f notation) string {
	space := ""
	if f.spaces {
		space = " \n\t"
	}
	switch value := value.(type) {
	case map[string]any:
		members := make([]string, 0, len(value))
		for _, name := range slices.Backward(slices.Sorted(maps.Keys(value))) {
			members = append(members, serialise(name, f)+space+":"+space+serialise(value[name], f))
		}
		return "{" + space + strings.Join(members, space+",") + space + "}"
	case []any:
		items := make([]string, 0, len(value))
		for _, item := range value {
			items = append(items, serialise(item, f))
		}
		return "[" + space + strings.Join(items, ","+space) + "]"
	case json.Number:
		if f.decimals && !strings.ContainsAny(value.String(), ".eE") {
			return value.String() + ".0"
		}
		return value.String()
	default:
		text, _ := json.Marshal(value) // it was decoded from JSON
		if f.escapes && len(text) > 2 && text[0] == '"' && text[1] != '\\' && text[1] < 0x80 {
			return fmt.Sprintf(`"\u%04x%s`, text[1], text[2:])
		}
		return string(text)
	}
}

// ambiguous returns bodies that two parsers may read differently.
func ambiguous(body string) []variant {
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return nil
	}
	start := decoder.InputOffset()
	name, err := decoder.Token()
	var member json.RawMessage
	if _, ok := name.(string); err != nil || !ok || decoder.Decode(&member) != nil {
		return nil
	}
	end := decoder.InputOffset()
	variants := []variant{
		{"a duplicate member", body[:start] + body[start:end] + "," + body[start:]},
		{"trailing data", body + " {}"},
	}
	if i := stringEnd(body); i > 0 {
		variants = append(variants, variant{"invalid UTF-8", body[:i] + "\xff" + body[i:]})
	}
	if i := integerEnd(body); i > 0 {
		variants = append(variants, variant{"digits that a double does not keep", body[:i] + ".0000000000000000001" + body[i:]})
	}
	return variants
}

// stringEnd returns the position of the quote that ends the first string value.
func stringEnd(body string) int {
	return find(body, func(value json.Token) bool { _, ok := value.(string); return ok }) - 1
}

// integerEnd returns the position after the first integer.
func integerEnd(body string) int {
	return find(body, func(value json.Token) bool {
		number, ok := value.(json.Number)
		return ok && number != "0" && !strings.ContainsAny(number.String(), ".eE")
	})
}

// find returns the position after the first matching value that is not the name of a
// member, or 0.
func find(body string, matches func(json.Token) bool) int {
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	type level struct{ object, name bool }
	var levels []level
	for {
		next, err := decoder.Token()
		if err != nil {
			return 0
		}
		delimiter, _ := next.(json.Delim)
		if delimiter == '}' || delimiter == ']' {
			levels = levels[:len(levels)-1]
			continue
		}
		if n := len(levels); n > 0 && levels[n-1].object {
			levels[n-1].name = !levels[n-1].name
			if levels[n-1].name {
				continue
			}
		}
		switch {
		case delimiter != 0:
			levels = append(levels, level{object: delimiter == '{'})
		case matches(next):
			return int(decoder.InputOffset())
		}
	}
}
