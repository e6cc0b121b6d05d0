package idempotency_test

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

	"example.com/orders-api/idempotency"
)

// The examples of the RFC, without the numbers that Canonicalize rejects.
func TestCanonicalize_examplesOfRFC8785(t *testing.T) {
	t.Parallel()
	t.Run("section 3.2.2", func(t *testing.T) {
		t.Parallel()
		got, err := idempotency.Canonicalize([]byte(sample("333333333.33333331, 4.50, 2e-3, 0.000000000000000000000000001")))
		require.NoError(t, err)
		require.Equal(t, rfcBytes, fmt.Sprintf("% x", got))
		for _, rejected := range []string{"1E30", "333333333.33333329"} {
			_, err := idempotency.Canonicalize([]byte(sample(rejected)))
			require.ErrorIs(t, err, idempotency.ErrMalformed)
		}
	})
	t.Run("section 3.2.3", func(t *testing.T) {
		t.Parallel()
		got, err := idempotency.Canonicalize([]byte(`{
  "\u20ac": "Euro Sign",
  "\r": "Carriage Return",
  "\ufb33": "Hebrew Letter Dalet With Dagesh",
  "1": "One",
  "\ud83d\ude00": "Emoji: Grinning Face",
  "\u0080": "Control",
  "\u00f6": "Latin Small Letter O With Diaeresis"
}`))
		require.NoError(t, err)
		var values []string
		for _, member := range strings.Split(strings.Trim(string(got), "{}"), `",`) {
			_, value, _ := strings.Cut(member, `":"`)
			values = append(values, strings.TrimSuffix(value, `"`))
		}
		require.Equal(t, []string{
			"Carriage Return", "One", "Control", "Latin Small Letter O With Diaeresis",
			"Euro Sign", "Emoji: Grinning Face", "Hebrew Letter Dalet With Dagesh",
		}, values)
		require.True(t, strings.HasPrefix(string(got), `{"\r":`), "escapes are the shortest ones")
		require.Contains(t, string(got), "\"\u0080\":\"Control\",\"ö\":")
	})
}

// sample is the object of section 3.2.2 with these numbers.
func sample(numbers string) string {
	return `{
  "numbers": [` + numbers + `],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`
}

// rfcBytes are the bytes of section 3.2.4 without 1E30.
const rfcBytes = "7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72 " +
	"75 65 2c 66 61 6c 73 65 5d 2c 22 6e 75 6d 62 65 72 73 22 3a " +
	"5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c " +
	"34 2e 35 2c 30 2e 30 30 32 2c 31 65 2d 32 37 " +
	"5d 2c 22 73 74 72 69 6e 67 22 3a 22 e2 82 ac 24 5c 75 30 30 " +
	"30 66 5c 6e 41 27 42 5c 22 5c 5c 5c 5c 5c 22 2f 22 7d"

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
