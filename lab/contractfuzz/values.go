package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// style controls the choice of a value.
type style int

const (
	anyStyle style = iota
	smallest       // no optional members, lower limits
	largest        // all members, upper limits
	styles
)

// generator makes values from schemas, always the same from the same source.
type generator struct {
	*rand.Rand
	style style
}

// between often returns one of the limits.
func (g generator) between(low, high int) int {
	switch {
	case g.style == smallest || high <= low:
		return low
	case g.style == largest || g.chance(8):
		return high
	default:
		return low + g.IntN(min(high-low, 1+g.IntN(1+min(high-low, 300)))+1)
	}
}

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g generator, all []T) T { return all[g.IntN(len(all))] }

// value implements some keywords only. The caller validates its result.
func (g generator) value(schema node) any {
	if values := list(schema["enum"]); values != nil {
		return pick(g, values)
	}
	if value, ok := schema["const"]; ok {
		return value
	}
	switch schema["type"] {
	case "object":
		value := node{}
		properties, required := object(schema["properties"]), list(schema["required"])
		for _, name := range sortedKeys(properties) {
			if slices.Contains(required, any(name)) || g.style == largest || g.style == anyStyle && g.chance(50) {
				value[name] = g.value(object(properties[name]))
			}
		}
		if others, ok := schema["additionalProperties"].(node); ok {
			names := object(schema["propertyNames"])
			for range g.between(0, number(schema["maxProperties"], 5)) {
				value[g.text(1, number(names["maxLength"], 20))] = g.value(others)
			}
		}
		return value
	case "array":
		value := []any{}
		for range max(number(schema["minItems"], 0), min(g.between(number(schema["minItems"], 0), number(schema["maxItems"], 5)), 1+g.IntN(100))) {
			value = append(value, g.value(object(schema["items"])))
		}
		return value
	case "integer":
		return g.between(number(schema["minimum"], 0), number(schema["maximum"], 1000))
	case "boolean":
		return g.chance(50)
	default:
		if pattern, ok := schema["pattern"].(string); ok {
			return g.matching(pattern, number(schema["minLength"], 0), number(schema["maxLength"], 100))
		}
		return g.text(number(schema["minLength"], 0), number(schema["maxLength"], 100))
	}
}

// text includes control characters.
func (g generator) text(low, high int) string {
	alphabet := []rune("abcXYZ019 _-./~\\\"<>&%\x00\n\x7fäß€中\u2028\ufffd😀")
	text := make([]rune, g.between(low, high))
	for i := range text {
		text[i] = pick(g, alphabet)
	}
	return string(text)
}

// matching returns a string that matches the pattern, with the given length if possible.
func (g generator) matching(pattern string, low, high int) string {
	expression, err := syntax.Parse(goPattern(pattern), syntax.Perl)
	if err != nil {
		return ""
	}
	var text string
	for attempt := range 20 {
		var out strings.Builder
		if attempt == 1 {
			g.style = anyStyle // the extreme length does not fit
		}
		g.match(expression, high, &out)
		text = out.String()
		if n := utf8.RuneCountInString(text); n >= low && n <= high {
			break
		}
	}
	return text
}

func (g generator) match(e *syntax.Regexp, high int, out *strings.Builder) {
	low, repeat := 1, 1
	switch e.Op {
	case syntax.OpLiteral:
		out.WriteString(string(e.Rune))
		return
	case syntax.OpCharClass:
		out.WriteRune(g.member(e.Rune))
		return
	case syntax.OpAlternate:
		g.match(pick(g, e.Sub), high, out)
		return
	case syntax.OpStar:
		low, repeat = 0, high
	case syntax.OpPlus:
		low, repeat = 1, high
	case syntax.OpQuest:
		low, repeat = 0, 1
	case syntax.OpRepeat:
		if low, repeat = e.Min, e.Max; repeat < 0 {
			repeat = high
		}
	}
	if len(e.Sub) > 0 && e.Sub[0].Op == syntax.OpCapture {
		repeat = min(repeat, low+3)
	}
	for range g.between(low, repeat) {
		for _, part := range e.Sub {
			g.match(part, high, out)
		}
	}
}

// member returns a character of a class, usually an ASCII one.
func (g generator) member(ranges []rune) rune {
	if first, last := ranges[0], ranges[1]; first < utf8.RuneSelf && g.chance(80) {
		if len(ranges) > 2 && ranges[2] < utf8.RuneSelf && g.chance(80) {
			at := 2 * g.IntN(len(ranges)/2)
			first, last = ranges[at], ranges[at+1]
		}
		if last = min(last, '~'); first <= last {
			return first + g.Int32N(last-first+1)
		}
	}
	at := 2 * g.IntN(len(ranges)/2)
	char := ranges[at] + g.Int32N(min(ranges[at+1]-ranges[at], 0xffff)+1)
	if !utf8.ValidRune(char) {
		return 'x'
	}
	return char
}

// fault is one change that makes a valid value invalid.
type fault struct {
	name  string
	path  []any // names and indexes
	value any   // absent{} removes
}

type absent struct{}

// addresses are near the limit between valid and invalid. The validator decides.
var addresses = []any{
	"ada@-example.com", "ada@example-.com", "ada@exa_mple.com", "ada@example", "a..b@example.com", ".a@example.com", "a.@example.com",
	`"a b"@example.com`, "ada@[127.0.0.1]", "Ada <ada@example.com>", "ada@example.com, bob@example.com", "ada@example.com\r\nBcc: b@example.com",
	strings.Repeat("a", 64) + "@example.com", strings.Repeat("a", 65) + "@example.com",
	addressOf(254), addressOf(255), "ada@" + strings.Repeat("l", 63) + ".com", "ada@" + strings.Repeat("l", 64) + ".com", "ådå@example.com", "ada@exämple.com", "A+b@EXAMPLE.co", "",
}

// addressOf returns an address of this length whose parts have the maximum size.
func addressOf(length int) string {
	label := strings.Repeat("l", 63) + "."
	return strings.Repeat("a", 64) + "@" + label + label + strings.Repeat("l", length-len(label)*2-65)
}

// faults lists changes of a value, most of them invalid.
func (g generator) faults(schema node, value any, path []any) []fault {
	var all []fault
	here := func(name string, value any) { all = append(all, fault{name, path, value}) }
	below := func(step any) []any { return append(slices.Clone(path), step) }
	for _, other := range []any{nil, true, json.Number("1.5"), "text", []any{}, node{}, json.Number("-1")} {
		here("wrong type", other)
	}
	if list(schema["enum"]) != nil {
		here("not in enum", "Other")
	}
	switch value := value.(type) {
	case node:
		properties := object(schema["properties"])
		for _, name := range list(schema["required"]) {
			all = append(all, fault{"missing member", below(name), absent{}})
		}
		for _, name := range []string{"unknown", "", "Email", "id", "amount_refunded"} {
			all = append(all, fault{"extra member", below(name), pick(g, []any{nil, "x", json.Number("1")})})
		}
		if most := number(schema["maxProperties"], -1); most >= 0 {
			many := maps.Clone(value)
			for i := range most + 1 {
				many[fmt.Sprint("entry", i)] = "x"
			}
			here("too many members", many)
			all = append(all, fault{"name too long", below(strings.Repeat("n", number(object(schema["propertyNames"])["maxLength"], 40)+1)), "x"})
		}
		for _, name := range sortedKeys(value) {
			if property, ok := properties[name].(node); ok {
				all = append(all, g.faults(property, value[name], below(name))...)
			} else if property, ok := schema["additionalProperties"].(node); ok {
				all = append(all, g.faults(property, value[name], below(name))...)
			}
		}
	case []any:
		if most := number(schema["maxItems"], 0); most > 0 && len(value) > 0 {
			here("too many items", slices.Repeat(value[:1], most+1))
		}
		if len(value) > 0 {
			at := g.IntN(len(value))
			all = append(all, g.faults(object(schema["items"]), value[at], below(at))...)
		}
	case string:
		here("too long", value+strings.Repeat("a", number(schema["maxLength"], 1000)))
		here("too long by one", value+strings.Repeat("a", max(0, number(schema["maxLength"], 1000)+1-utf8.RuneCountInString(value))))
		here("too short", "")
		here("pattern broken", value+pick(g, []string{"\n", "\x00", " ", "é", "\u0085"}))
		here("pattern broken", strings.ToUpper(value))
		if schema["format"] == "email" {
			here("address", pick(g, addresses))
		}
	case int:
		here("too small", number(schema["minimum"], 0)-1)
		here("too large", number(schema["maximum"], 1<<40)+1)
		here("wrong type", fmt.Sprint(value))
	}
	return all
}

func (f fault) apply(value any) any {
	if len(f.path) == 0 {
		return f.value
	}
	rest := fault{f.name, f.path[1:], f.value}
	switch value := value.(type) {
	case node:
		changed, name := maps.Clone(value), f.path[0].(string)
		if _, remove := f.value.(absent); remove && len(f.path) == 1 {
			delete(changed, name)
		} else {
			changed[name] = rest.apply(value[name])
		}
		return changed
	case []any:
		changed, at := slices.Clone(value), f.path[0].(int)
		changed[at] = rest.apply(value[at])
		return changed
	default:
		return value
	}
}

func valid(schema *jsonschema.Schema, value any) bool {
	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(encode(value)))
	return err == nil && schema.Validate(decoded) == nil
}

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // made by this program
	}
	return text
}

// unreadable changes a body so that it is no valid JSON, in the ways that the contract's
// introduction lists.
func (g generator) unreadable(text []byte) (name string, changed []byte) {
	open := func(member string) []byte { return append([]byte("{"+member+","), text[1:]...) }
	if len(text) == 2 {
		open = func(member string) []byte { return []byte("{" + member + "}") }
	}
	numbers := []string{
		"1e400", "-1e400", "9007199254740993", "9007199254740992", "1.0000000000000001", "1.0000000000000000001", "1e-31", "0.1000000000000000055511151231257827",
		"01", "+1", "1.", ".5", "NaN", "Infinity", "0x10", "1e", "--1",
	}
	switch kind := g.IntN(14); kind {
	case 0:
		return "empty body", nil
	case 1:
		return "no object", []byte(pick(g, []string{"null", "[]", `"text"`, "1", "true", " ", "[{}]"}))
	case 2:
		return "trailing data", append(slices.Clone(text), pick(g, []string{"x", "{}", ",", "]", "\x00"})...)
	case 3:
		return "truncated", text[:g.IntN(len(text))]
	case 4:
		return "duplicate member", open(`"twin":1,"twin":1`)
	case 5:
		return "duplicate member, escaped", open(`"tw\u0069n":1,"twin":2`)
	case 6:
		return "invalid UTF-8", open("\"text\":\"" + pick(g, []string{"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) + `"`)
	case 7:
		return "lone surrogate", open(`"text":"` + pick(g, []string{`\ud800`, `\udc00`, `\ud800\ud800`}) + `"`)
	case 8:
		depth := pick(g, []int{2048, 10000})
		return "deep nesting", open(`"deep":` + strings.Repeat("[", depth) + strings.Repeat("]", depth))
	case 9:
		return "number out of bounds", open(`"number":` + pick(g, numbers))
	case 10:
		return "too many values", open(`"many":[0` + strings.Repeat(",0", 2048) + "]")
	case 11:
		return "byte order mark", append([]byte("\ufeff"), text...)
	case 12:
		return "control character", open("\"text\":\"\n\"")
	default:
		return "not JSON", []byte(pick(g, []string{"{'a':1}", "{a:1}", `{"a":1,}`, `{"a":}`, `{"a" 1}`, "{/**/}", `{"a":"\x"}`, "email=ada@example.com"}))
	}
}

// rewritten returns the same JSON with other white space, escapes, number forms and order
// of members.
func (g generator) rewritten(value any) string {
	space := pick(g, []string{"", " ", "\n\t", "\r\n"})
	switch value := value.(type) {
	case node:
		names := sortedKeys(value)
		g.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		parts := make([]string, len(names))
		for i, name := range names {
			parts[i] = space + g.rewritten(name) + space + ":" + g.rewritten(value[name])
		}
		return "{" + strings.Join(parts, ",") + space + "}"
	case []any:
		parts := make([]string, len(value))
		for i := range value {
			parts[i] = space + g.rewritten(value[i])
		}
		return "[" + strings.Join(parts, ",") + "]"
	case string:
		var out strings.Builder
		for _, char := range value {
			switch {
			case char < 0x20 || char == '"' || char == '\\' || char < 0xffff && g.chance(10):
				fmt.Fprintf(&out, `\u%04x`, char)
			default:
				out.WriteRune(char)
			}
		}
		return `"` + out.String() + `"`
	case int:
		if value == 0 {
			return pick(g, []string{"0", "0.0", "0e9", "-0"})
		}
		return fmt.Sprintf(pick(g, []string{"%d", "%d.0", "%de0", "%d0e-1"}), value)
	default:
		return string(encode(value))
	}
}
