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

// changedValues returns bodies that differ from the given one in one value each. All other
// bytes are equal, because a server may compare the first ones only.
func changedValues(body string) []variant {
	return some(edited(body, func(old string, value any) (string, bool) {
		switch value := value.(type) {
		case string:
			return old[:len(old)-1] + `x"`, true
		case json.Number:
			number, err := strconv.ParseInt(old, 10, 64)
			return strconv.FormatInt(number+1, 10), err == nil
		case bool:
			return strconv.FormatBool(!value), true
		default:
			return "", false
		}
	}))
}

// retypedValues returns bodies that differ in the type of one value each, such as "500"
// instead of 500.
func retypedValues(body string) []variant {
	variants := some(edited(body, func(old string, value any) (string, bool) {
		switch value := value.(type) {
		case string:
			number, err := strconv.ParseInt(value, 10, 64)
			return value, err == nil && strconv.FormatInt(number, 10) == value
		case json.Number, bool:
			return `"` + old + `"`, true
		default:
			return "", false
		}
	}))
	for i := range variants {
		variants[i].name += " as another type"
	}
	return variants
}

// edited returns a body for each value for which change returns another one.
func edited(body string, change func(old string, value any) (string, bool)) []variant {
	var variants []variant
	for _, p := range places(body) {
		if text, ok := change(body[p.start:p.end], p.value); ok {
			variants = append(variants, variant{p.pointer, body[:p.start] + text + body[p.end:]})
		}
	}
	return variants
}

// some returns the first and the last variants.
func some(variants []variant) []variant {
	if len(variants) <= maxVariants {
		return variants
	}
	return slices.Concat(variants[:maxVariants/2], variants[len(variants)-maxVariants/2:])
}

// removedMembers returns bodies that lack one member each.
func removedMembers(body string) []variant {
	value, err := decode([]byte(body))
	if err != nil {
		return nil
	}
	var variants []variant
	eachMember(value, "", func(pointer string, object map[string]any, name string) {
		old := object[name]
		delete(object, name)
		variants = append(variants, variant{pointer + " is absent", encoded(value)})
		object[name] = old
	})
	return some(variants)
}

// eachMember visits the members of all objects in a fixed order.
func eachMember(value any, pointer string, visit func(pointer string, object map[string]any, name string)) {
	switch container := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(container)) {
			visit(pointer+"/"+name, container, name)
			eachMember(container[name], pointer+"/"+name, visit)
		}
	case []any:
		for i := range container {
			eachMember(container[i], pointer+"/"+strconv.Itoa(i), visit)
		}
	}
}

// encoded writes a value that was decoded from JSON.
func encoded(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

// comparison is a body, and bodies that are other requests. The server may reject the first,
// because it is derived from operation.body.
type comparison struct {
	name, body string
	others     []variant
}

// reordered compares the order of two items of the first list. If it has one item, a similar
// one is added.
func reordered(body string) []comparison {
	value, err := decode([]byte(body))
	if err != nil {
		return nil
	}
	c := comparison{name: "the order of a list"}
	eachMember(value, "", func(pointer string, object map[string]any, name string) {
		items, ok := object[name].([]any)
		if !ok || len(items) == 0 || c.body != "" {
			return
		}
		with := func(changed ...any) string {
			object[name] = changed
			defer func() { object[name] = items }()
			return encoded(value)
		}
		first, last := items[0], items[len(items)-1]
		if len(items) == 1 {
			last = another(first)
		}
		if last == nil || encoded(first) == encoded(last) {
			return
		}
		c.body = with(first, last)
		c.others = []variant{
			{pointer + " in another order", with(last, first)},
			{pointer + "/1", with(first, another(last))},
		}
	})
	if c.body == "" {
		return nil
	}
	return []comparison{c}
}

// another returns an item with its first number changed, or otherwise its first value. It
// returns nil if there is neither.
func another(item any) any {
	text := encoded(item)
	numbers := edited(text, func(old string, _ any) (string, bool) {
		number, err := strconv.ParseInt(old, 10, 64)
		return strconv.FormatInt(number+1, 10), err == nil
	})
	changed := append(numbers, changedValues(text)...)
	if len(changed) == 0 {
		return nil
	}
	value, _ := decode([]byte(changed[0].body))
	return value
}

const mostOmitted = 2

// omitted compares false with an absent member.
func omitted(body string) []comparison {
	value, err := decode([]byte(body))
	if err != nil {
		return nil
	}
	var all []comparison
	eachMember(value, "", func(pointer string, object map[string]any, name string) {
		if object[name] != true || len(all) == mostOmitted {
			return
		}
		object[name] = false
		c := comparison{name: pointer + " is false", body: encoded(value)}
		delete(object, name)
		c.others = []variant{{pointer + " is absent instead of false", encoded(value)}}
		object[name] = true
		all = append(all, c)
	})
	return all
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
	return find(body, func(value any) bool { _, ok := value.(string); return ok }) - 1
}

// integerEnd returns the position after the first integer.
func integerEnd(body string) int {
	return find(body, func(value any) bool {
		number, ok := value.(json.Number)
		return ok && number != "0" && !strings.ContainsAny(number.String(), ".eE")
	})
}

// find returns the position after the first matching value, or 0.
func find(body string, matches func(any) bool) int {
	for _, p := range places(body) {
		if matches(p.value) {
			return p.end
		}
	}
	return 0
}

// place is where a body has a string, number, truth value or null.
type place struct {
	pointer    string
	value      any
	start, end int
}

// places returns them in the order of the text, up to the first error.
func places(body string) []place {
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	type level struct {
		object bool
		name   string
		named  bool // the value follows
		index  int
	}
	var levels []level
	pointer := func() string {
		var text strings.Builder
		for _, l := range levels {
			if text.WriteByte('/'); l.object {
				text.WriteString(l.name)
			} else {
				text.WriteString(strconv.Itoa(l.index))
			}
		}
		return text.String()
	}
	var all []place
	for {
		before := int(decoder.InputOffset())
		token, err := decoder.Token()
		if err != nil {
			return all
		}
		end := int(decoder.InputOffset())
		start := end - len(strings.TrimLeft(body[before:end], " \t\r\n:,"))
		switch delimiter, _ := token.(json.Delim); {
		case delimiter == '{', delimiter == '[':
			levels = append(levels, level{object: delimiter == '{'})
			continue
		case delimiter != 0:
			levels = levels[:len(levels)-1]
		case len(levels) > 0 && levels[len(levels)-1].object && !levels[len(levels)-1].named:
			levels[len(levels)-1].name, levels[len(levels)-1].named = token.(string), true
			continue
		default:
			all = append(all, place{pointer(), token, start, end})
		}
		if n := len(levels); n > 0 {
			levels[n-1].named, levels[n-1].index = false, levels[n-1].index+1
		}
	}
}
