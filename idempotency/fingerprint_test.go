package idempotency_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/idempotency"
)

func TestCanonicalize(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body, want string
	}{
		{"empty object", ` {} `, `{}`},
		{"one, with a fraction", `{"a":1.0}`, `{"a":1}`},
		{"one, with an exponent", `{"a":1e0}`, `{"a":1}`},
		{"minus zero", `{"a":-0}`, `{"a":0}`},
		{"largest integer", `{"a":9007199254740991,"b":-9007199254740991}`, `{"a":9007199254740991,"b":-9007199254740991}`},
		{"NUL", `{"a":"\u0000"}`, `{"a":"\u0000"}`},
		{"surrogate pair", `{"a":"\ud83d\ude00"}`, `{"a":"😀"}`},
		{"32 levels", nested(32), nested(32)},
		{"duplicate in different objects", `{"a":{"x":1},"b":{"x":1}}`, `{"a":{"x":1},"b":{"x":1}}`},
		{"empty name", `{"":1}`, `{"":1}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			canonical, err := idempotency.Canonicalize([]byte(test.body))
			require.NoError(t, err)
			require.Equal(t, test.want, string(canonical))
			again, err := idempotency.Canonicalize(canonical)
			require.NoError(t, err)
			require.Equal(t, test.want, string(again))
		})
	}
}

// nested is an object of so many levels.
func nested(levels int) string {
	return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

func TestCanonicalize_malformed(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing":                    "",
		"white space":                " \r\n\t",
		"array":                      `[]`,
		"string":                     `"{}"`,
		"number":                     `1`,
		"null":                       `null`,
		"trailing brace":             `{}}`,
		"two objects":                `{} {}`,
		"trailing text":              `{} x`,
		"trailing NUL":               "{}\x00",
		"trailing comma":             `{"a":1,}`,
		"cut off":                    `{"a":1`,
		"cut off in a string":        `{"a":"`,
		"duplicate member":           `{"a":1,"a":1}`,
		"duplicate, spelled other":   `{"a":1,"\u0061":2}`,
		"duplicate, deep down":       `{"a":[{"b":1,"b":2}]}`,
		"lone high surrogate":        `{"a":"\ud83d"}`,
		"lone low surrogate":         `{"a":"\ude00"}`,
		"high surrogate, then other": `{"a":"\ud83dA"}`,
		"not UTF-8":                  "{\"a\":\"\xff\"}",
		"not UTF-8, in a name":       "{\"\xc3\":1}",
		"overlong UTF-8":             "{\"a\":\"\xc0\xaf\"}",
		"surrogate in UTF-8":         "{\"a\":\"\xed\xa0\x80\"}",
		"byte order mark":            "\xef\xbb\xbf{}",
		"raw newline in a string":    "{\"a\":\"\n\"}",
		"unknown escape":             `{"a":"\x"}`,
		"comment":                    `{} // ok`,
		"single quotes":              `{'a':1}`,
		"name without quotes":        `{a:1}`,
		"leading zero":               `{"a":01}`,
		"leading plus":               `{"a":+1}`,
		"a point without any digits": `{"a":1.}`,
		"hexadecimal":                `{"a":0x1}`,
		"not a number":               `{"a":NaN}`,
		"infinity":                   `{"a":Infinity}`,
		"2^53":                       `{"a":9007199254740992}`,
		"-2^53":                      `{"a":-9007199254740992}`,
		"2^53, with an exponent":     `{"a":9007199254740992e0}`,
		"2^53 + 1":                   `{"a":[9007199254740993]}`,
		"beyond a double":            `{"a":1e400}`,
		"33 levels":                  nested(33),
		"100,000 levels":             nested(100_000),
		"capital literal":            `{"a":True}`,
		"colon missing":              `{"a" 1}`,
		"comma missing":              `{"a":1 "b":2}`,
		"non-breaking space":         "{\u00a0}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := idempotency.Canonicalize([]byte(body))
			require.ErrorIs(t, err, idempotency.ErrMalformed)
			require.Less(t, len(err.Error()), 200, "the error does not repeat the body")
		})
	}
}

// jsonValue draws what a client may send.
func jsonValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 5
		if depth > 0 {
			kinds = 7
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return float64(rapid.Int64Range(-(1<<53-1), 1<<53-1).Draw(t, "integer"))
		case 3:
			return rapid.Float64Range(-1e15, 1e15).Draw(t, "number")
		case 4:
			return rapid.String().Draw(t, "string")
		case 5:
			return rapid.SliceOfN(jsonValue(depth-1), 0, 3).Draw(t, "array")
		default:
			return rapid.MapOfN(rapid.String(), jsonValue(depth-1), 0, 4).Draw(t, "object")
		}
	})
}

// serialise writes a value in one of the ways that clients use: members in any
// order, white space anywhere, strings escaped or not.
func serialise(t *rapid.T, v any) string {
	space := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space")
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		source := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		source.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		members := make([]string, len(names))
		for i, name := range names {
			members[i] = serialise(t, name) + space + ":" + space + serialise(t, v[name])
		}
		return "{" + space + strings.Join(members, ",") + "}" + space
	case []any:
		elements := make([]string, len(v))
		for i, element := range v {
			elements[i] = serialise(t, element)
		}
		return "[" + strings.Join(elements, space+","+space) + "]"
	case string:
		if rapid.Bool().Draw(t, "escaped") {
			var b strings.Builder
			for _, c := range v {
				if c > 0xffff {
					b.WriteRune(c)
				} else {
					fmt.Fprintf(&b, `\u%04X`, c)
				}
			}
			return `"` + b.String() + `"`
		}
	case float64:
		if rapid.Bool().Draw(t, "exponent") {
			return fmt.Sprintf("%.17e", v)
		}
	}
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// All serialisations of a request have the same canonical form (R3).
func TestCanonicalize_serialisation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(rapid.String(), jsonValue(3), 0, 5).Draw(t, "object")
		one, err := idempotency.Canonicalize([]byte(serialise(t, object)))
		require.NoError(t, err)
		two, err := idempotency.Canonicalize([]byte(serialise(t, object)))
		require.NoError(t, err)
		require.Equal(t, string(one), string(two))

		var back map[string]any
		require.NoError(t, json.Unmarshal(one, &back))
		require.Equal(t, len(object), len(back))
	})
}

func FuzzCanonicalize(f *testing.F) {
	for _, body := range []string{
		`{}`, ` {"b":1.0,"a":[true,null,"\u20ac\ud83d\ude00"]}`, `{"a":1,"a":2}`, `{"a":"\ud800"}`, `{"a":9007199254740993}`,
		"{\"\xff\":1}", `{"a":1e-400}`, nested(33), `{"\u0000":-0}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		canonical, err := idempotency.Canonicalize(body)
		if err != nil {
			require.ErrorIs(t, err, idempotency.ErrMalformed)
			return
		}
		again, err := idempotency.Canonicalize(canonical)
		require.NoError(t, err)
		require.Equal(t, string(canonical), string(again))

		// For a JSON parser without RFC 8785 it has the same content.
		var before, after any
		require.NoError(t, json.Unmarshal(body, &before))
		require.NoError(t, json.Unmarshal(canonical, &after))
		require.True(t, reflect.DeepEqual(before, after), "%s", canonical)

		// A second implementation of the RFC writes the same, and another serialisation
		// of the same values has the same form.
		require.Equal(t, rfc8785(before), string(canonical))
		reversed, err := idempotency.Canonicalize([]byte(otherwise(before)))
		require.NoError(t, err)
		require.Equal(t, string(canonical), string(reversed))
	})
}

// Fingerprints are stored: within a version they never change (R3).
func TestFingerprint_frozen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.request()
	_, err := f.do(req, oneStep())
	require.NoError(t, err)
	var hash []byte
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT params_hash FROM idempotency_keys").Scan(&hash))
	require.Equal(t, "017ca5bfdf4645c393fea03d9b07df091c42283d24594d9a450def3bd164cdce8c", hex.EncodeToString(hash))
}
