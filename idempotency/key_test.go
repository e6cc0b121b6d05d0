package idempotency_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

func TestCanonicalize_accepted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, body, want string
	}{
		{"empty object", ` {} `, `{}`},
		{"one, with a fraction", `{"a":1.0}`, `{"a":1}`},
		{"minus zero", `{"a":-0}`, `{"a":0}`},
		{"NUL", `{"a":"\u0000"}`, `{"a":"\u0000"}`},
		{"surrogate pair", `{"a":"\ud83d\ude00"}`, `{"a":"😀"}`},
		{"2,047 levels and a name", nested(2047), nested(2047)},
		{"duplicate in different objects", `{"a":{"x":1},"b":{"x":1}}`, `{"a":{"x":1},"b":{"x":1}}`},
		{
			"RFC 8785, section 3.2.2", // with another number instead of 1E30, which is rejected
			`{ "numbers": [333333333.33333331, 4.50, 2e-3, 0.000000000000000000000000001],
			   "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
			   "literals": [null, true, false] }`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
		{
			"RFC 8785, section 3.2.3",
			`{"\u20ac":"Euro","\r":"CR","\ufb33":"Dalet","1":"One","\ud83d\ude00":"Face","\u0080":"Control","\u00f6":"O"}`,
			"{\"\\r\":\"CR\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"O\",\"€\":\"Euro\",\"😀\":\"Face\",\"\ufb33\":\"Dalet\"}",
		},
	} {
		canonical, err := idempotency.Canonicalize([]byte(test.body))
		require.NoError(t, err, test.name)
		require.Equal(t, test.want, string(canonical), test.name)
	}
}

func nested(levels int) string {
	return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

func TestCanonicalize_malformed(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing":                    "",
		"array":                      `[]`,
		"null":                       `null`,
		"trailing brace":             `{}}`,
		"cut off":                    `{"a":1`,
		"duplicate member":           `{"a":1,"a":1}`,
		"duplicate, spelled other":   `{"a":1,"\u0061":2}`,
		"duplicate, deep down":       `{"a":[{"b":1,"b":2}]}`,
		"lone high surrogate":        `{"a":"\ud83d"}`,
		"lone low surrogate":         `{"a":"\ude00"}`,
		"high surrogate, then other": `{"a":"\ud83dA"}`,
		"not UTF-8":                  "{\"a\":\"\xff\"}",
		"overlong UTF-8":             "{\"a\":\"\xc0\xaf\"}",
		"byte order mark":            "\xef\xbb\xbf{}",
		"2,048 levels and a name":    nested(2048),
		"100,000 levels":             nested(100_000),
		"non-breaking space":         "{\u00a0}",
	} {
		_, err := idempotency.Canonicalize([]byte(body))
		require.ErrorIs(t, err, idempotency.ErrMalformed, name)
		require.Less(t, len(err.Error()), 200, "the error does not repeat the body")
	}
}

// The limits hold for the value, in any notation.
func TestCanonicalize_numbers(t *testing.T) {
	t.Parallel()
	const (
		digits = "has more than 17 significant digits"
		small  = "is closer to 0 than 1e-30"
		large  = "is beyond 2^53 − 1"
		kept   = "has digits that a double does not keep"
		long   = "is longer than 100 bytes"
	)
	for literal, want := range map[string]string{
		"5e-324":                       small,
		"1e-31":                        small,
		"1e-99999999999999999999":      small,
		"100000000000000000.1e-10":     digits,
		"0." + strings.Repeat("1", 98): digits,
		"0." + strings.Repeat("1", 99): long,
		"1.0000000000000001":           kept,
		"4503599627370496.6":           kept,
		"0.10000000000000001":          "", // as %.17g writes 0.1
		"9007199254740992":             large,
		"9007199254740991.4":           kept,
		"1" + strings.Repeat("0", 99):  large,
		"-1e99999999999999999999":      large,
		"1e-30":                        "",
		"0e-400":                       "",
		"2." + strings.Repeat("0", 98): "",
		"0.30000000000000004":          "",
		"9007199254740991":             "",
		"-0.9007199254740991E+16":      "",

		"1" + strings.Repeat("0", 801) + "e-799": long, // 100, which strconv.ParseFloat reads as 1
		"1" + strings.Repeat("0", 95) + "e-95":   "",
		"1000000000000000.5":                     "",
	} {
		_, err := idempotency.Canonicalize([]byte(`{"a":` + literal + `}`))
		if want == "" {
			require.NoError(t, err, literal)
			continue
		}
		require.ErrorIs(t, err, idempotency.ErrMalformed, literal)
		require.ErrorContains(t, err, want, literal)
	}
}

func TestCanonicalize_manyValues(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`1`, `""`, `{}`, `[]`, `null`, `true`, `false`, `-1.5`} {
		for values, want := range map[int]bool{2045: true, 2046: false} { // with the object, the name and the array
			body := `{"a":[` + strings.TrimSuffix(strings.Repeat(value+",", values), ",") + `]}`
			_, err := idempotency.Canonicalize([]byte(body))
			if want {
				require.NoError(t, err, value)
				continue
			}
			require.ErrorIs(t, err, idempotency.ErrMalformed, value)
			require.ErrorContains(t, err, "more than 2048 names and values", value)
		}
	}
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
		require.JSONEq(t, string(body), string(canonical))
	})
}

// Fingerprints are stored, so they never change.
func TestFingerprint_frozen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := f.request()
	f.mustDo(req, oneStep())
	var hash []byte
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT fingerprint FROM idempotency_keys").Scan(&hash))
	require.Equal(t, "017ca5bfdf4645c393fea03d9b07df091c42283d24594d9a450def3bd164cdce8c", hex.EncodeToString(hash))
}

func TestParseKey_bounds(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{
		"shortest":     strings.Repeat("k", 16),
		"longest":      strings.Repeat("k", 255),
		"UUID":         "2f1cdb0e-8a0f-4b0e-9d3c-6f6a2f3f9f10",
		"all of ASCII": `!"#$%&'()*+,-./0123456789:;<=>?@[\]^_` + "`{|}~",
	} {
		parsed, err := idempotency.ParseKey(key)
		require.NoError(t, err, name)
		require.Equal(t, key, string(parsed))
	}
	for name, key := range map[string]string{
		"empty":     "",
		"too short": strings.Repeat("k", 15),
		"too long":  strings.Repeat("k", 256),
		"space":     "key with a space",
		"newline":   "abcdefghabcdefgh\n",
		"DEL":       "abcdefgh\x7fabcdefgh",
		"not ASCII": "schlüssel-schlüssel",
		"not UTF-8": "abcdefgh\xffabcdefgh",
	} {
		_, err := idempotency.ParseKey(key)
		require.ErrorIs(t, err, idempotency.ErrInvalidKey, name)
	}
}

// Derived ids are stored here and by providers: they never change.
func TestDeriveID_frozen(t *testing.T) {
	t.Parallel()
	account := uuid.MustParse("6f1c7f9e-53bd-4b0a-8c36-0f5f3f1f2c11")
	const key = idempotency.Key("2f1cdb0e-8a0f-4b0e-9d3c-6f6a2f3f9f10")
	require.Equal(t, "7705e15a-4cbc-8a23-b9bf-00fed0bdbaab", idempotency.KeyID(account, key).String())
	require.Equal(t, "cf6148ff-4392-8fed-ab71-9d4a90e2cc0a", idempotency.DeriveID("order", account, key).String())
	order := idempotency.DeriveID("order", account, key)
	require.EqualValues(t, 8, order.Version())
	require.Equal(t, uuid.RFC4122, order.Variant())
	for _, other := range []uuid.UUID{
		idempotency.KeyID(account, key),
		idempotency.DeriveID("order", uuid.New(), key),
		idempotency.DeriveID("order", account, key+"x"),
		idempotency.DeriveID("orde", account, "r"+key),
	} {
		require.NotEqual(t, order, other)
	}
}
