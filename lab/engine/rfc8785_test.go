package engine_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/idempotency"
)

func jsonValue(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.Map(rapid.Int64Range(-(1<<53-1), 1<<53-1), func(n int64) any { return float64(n) }),
		rapid.Float64Range(-1e15, 1e15).Filter(func(n float64) bool { return n == 0 || math.Abs(n) >= 1e-30 }).AsAny(),
		rapid.String().AsAny(),
	}
	if depth > 0 {
		kinds = append(kinds, rapid.SliceOfN(jsonValue(depth-1), 0, 3).AsAny(), rapid.MapOfN(rapid.String(), jsonValue(depth-1), 0, 4).AsAny())
	}
	return rapid.OneOf(kinds...)
}

// All serialisations of a request have one canonical form (R3).
func TestCanonicalize_serialisation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(rapid.String(), jsonValue(3), 0, 5).Draw(t, "object")
		body, err := json.Marshal(object)
		require.NoError(t, err)
		requireCanonical(t, body)
	})
}

// requireCanonical compares the canonical form of body with that of another
// serialisation and with that of rfc8785.
func requireCanonical(t require.TestingT, body []byte) {
	canonical, err := idempotency.Canonicalize(body)
	require.NoError(t, err)
	again, err := idempotency.Canonicalize(canonical)
	require.NoError(t, err)
	require.Equal(t, string(canonical), string(again))

	var before, after any
	require.NoError(t, json.Unmarshal(body, &before))
	require.NoError(t, json.Unmarshal(canonical, &after))
	require.Equal(t, before, after, "for a JSON parser without RFC 8785")

	require.Equal(t, rfc8785(before), string(canonical))
	other, err := idempotency.Canonicalize([]byte(otherwise(before)))
	require.NoError(t, err)
	require.Equal(t, string(canonical), string(other), "another serialisation")
}

// Serialisers write a double with the fewest digits that identify it, or with 17.
func TestCanonicalize_keepsDoubles(t *testing.T) {
	t.Parallel()
	for _, twoToMinus24 := range []string{"5.960464477539063e-08", "5.9604644775390625e-08"} {
		_, err := idempotency.Canonicalize([]byte(`{"a":` + twoToMinus24 + `}`))
		require.NoError(t, err, "the shortest and the exact form")
	}
	rapid.Check(t, func(t *rapid.T) {
		double := rapid.Float64Range(1e-30, 1<<53-1).Draw(t, "double")
		for _, text := range []string{
			strconv.FormatFloat(double, 'g', -1, 64), strconv.FormatFloat(double, 'f', -1, 64), strconv.FormatFloat(double, 'g', 17, 64),
		} {
			_, err := idempotency.Canonicalize([]byte(`{"a":-` + text + `}`))
			require.NoError(t, err, text)
		}
	})
}

// The numbers of appendix B, by their bits.
func TestCanonicalize_numbersOfRFC8785(t *testing.T) {
	t.Parallel()
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0",
		0x8000000000000000: "0",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325",
		0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334",
		0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		number := math.Float64frombits(bits)
		body := fmt.Appendf(nil, `{"n":%s}`, strconv.FormatFloat(number, 'e', 16, 64))
		got, err := idempotency.Canonicalize(body)
		require.NoError(t, err, "%s", body)
		require.Equal(t, `{"n":`+want+`}`, string(got))
		require.Equal(t, want, rfc8785(number), "the implementation below agrees")
	}
}

// rfc8785 is a second implementation of the RFC.
func rfc8785(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var members []string
		for _, name := range slices.SortedFunc(maps.Keys(v), compareUTF16) {
			members = append(members, rfc8785(name)+":"+rfc8785(v[name]))
		}
		return "{" + strings.Join(members, ",") + "}"
	case []any:
		var elements []string
		for _, element := range v {
			elements = append(elements, rfc8785(element))
		}
		return "[" + strings.Join(elements, ",") + "]"
	case string:
		return quoteJSON(v)
	case float64:
		if v == 0 {
			return "0" // also with a minus
		}
		text, _ := json.Marshal(v) // writes numbers as ECMAScript does
		return string(text)
	case bool:
		return strconv.FormatBool(v)
	default:
		return "null"
	}
}

func compareUTF16(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

func quoteJSON(s string) string {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	var b strings.Builder
	for _, c := range s {
		switch escape, known := short[c]; {
		case known:
			b.WriteString(escape)
		case c < ' ':
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}
	return `"` + b.String() + `"`
}

// otherwise serialises a value in another way: members in reverse order, all
// characters escaped, numbers with an exponent, white space wherever allowed.
func otherwise(v any) string {
	const blank = " \t\r\n"
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		slices.Reverse(names)
		var members []string
		for _, name := range names {
			members = append(members, blank+otherwise(name)+blank+":"+blank+otherwise(v[name])+blank)
		}
		return "{" + strings.Join(members, ",") + blank + "}"
	case []any:
		var elements []string
		for _, element := range v {
			elements = append(elements, blank+otherwise(element)+blank)
		}
		return "[" + strings.Join(elements, ",") + blank + "]"
	case string:
		var b strings.Builder
		for _, unit := range utf16.Encode([]rune(v)) {
			fmt.Fprintf(&b, `\u%04X`, unit)
		}
		return `"` + b.String() + `"`
	case float64:
		return strconv.FormatFloat(v, 'E', 16, 64)
	default:
		return rfc8785(v)
	}
}
