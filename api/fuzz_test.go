package api_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// FuzzIdempotencyKeyHeader compares the parser with the contract's pattern, and both
// forms of a key.
func FuzzIdempotencyKeyHeader(f *testing.F) {
	contract := openContract(f)
	grammar := regexp.MustCompile(contract.doc.Components.Schemas["IdempotencyKey"].Value.Pattern)
	for _, line := range []string{
		"", " ", `"`, `""`, `"\"`, `\`, "0123456789abcdef", `"0123456789abcdef"`, `"0123456789\"\\cdef"`, `"0123456789abcdef\"`,
		`"0123456789abcdef";a=1`, "0123456789abcdef, 0123456789abcdef", `0123456789"abcdef`, "0123456789\tabcdef", "0123456789abcdeé",
		strings.Repeat("k", 255), strings.Repeat("k", 256), `"` + strings.Repeat(`\"`, 255) + `"`, " \t0123456789abcdef\t ",
		"0123456789abcde", `"0123456789abcde"`, `"` + strings.Repeat(`\"`, 15) + `"`, `"` + strings.Repeat("k", 255) + `"`,
		"01234567 9abcdef", `"01234567 9abcdef"`, "0123456789abcde\xff", "0123456789abcde\x7f", strings.Repeat(`\`, 16),
		`"0123456789abcdef\n"`, `"0123456789abcdef\`, `"0123456789abcdef"x`, `"0123456789abcdef","0123456789abcdef"`,
		"!#$%&'()*+,-./:;<=>?@[]^_`{|}~",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		read := func(line string) (idempotency.Key, error) {
			return api.ReadKey(http.Header{"Idempotency-Key": {line}})
		}
		key, err := read(line)
		require.Equal(t, grammar.MatchString(canonical(line)), err == nil)
		if err != nil {
			require.Empty(t, key)
			return
		}
		require.Regexp(t, `^[!-~]{16,255}$`, string(key))

		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string(key)) + `"`
		again, err := read(quoted)
		require.NoError(t, err)
		require.Equal(t, key, again, "the quoted form")
		if key[0] != '"' { // which would begin a quoted form
			raw, err := read(string(key))
			require.NoError(t, err)
			require.Equal(t, key, raw, "the raw form")
		}
		require.Contains(t, []string{string(key), quoted}, canonical(line), "the only two forms")

		_, err = api.ReadKey(http.Header{"Idempotency-Key": {line, line}})
		require.ErrorIs(t, err, idempotency.ErrInvalidKey)
	})
}

func canonical(line string) string { return strings.Trim(line, " \t") }

// FuzzOrderRequest compares the decoder with the contract's schema. Only the total and
// the names of metadata have rules that a schema cannot express.
func FuzzOrderRequest(f *testing.F) {
	contract := openContract(f)
	schema := contract.doc.Components.Schemas["OrderRequest"].Value
	beyondSchema := regexp.MustCompile(`the total must be|the name must be`)
	f.Add([]byte(orderBody()))
	for _, address := range []string{
		"a@b.c", "a@b", "a.b@example.com", "a..b@example.com", ".a@example.com", "a.@example.com", "ada@-example.com", "ada@example-.com",
		"ada@exa_mple.com", "ada@example..com", "ada@example.com.", "!#$%&'*+/=?^_`{|}~-@example.com", `"a b"@example.com`, "ada@[127.0.0.1]",
		"ada@xn--exmple-cua.com", "ada@exämple.com", "ada@example.com\n", "ada@1.2", strings.Repeat("a", 64) + "@example.com",
		strings.Repeat("a", 65) + "@example.com", "a@" + strings.Repeat("d", 63) + ".com", "a@" + strings.Repeat("d", 64) + ".com",
		"a@" + strings.Repeat("d.", 125) + "dd", "a@" + strings.Repeat("d.", 125) + "ddd",
	} {
		f.Add([]byte(orderBody(withMember("email", address))))
	}
	for _, n := range []int{64, 65, 251, 252, 500, 501} { // the longest texts
		text := strings.Repeat("x", n)
		f.Add([]byte(orderBody(withMember("payment_method", "pppppppppp_"+text[11:]))))
		for _, name := range []string{"sku", "description"} {
			f.Add([]byte(strings.Replace(orderBody(), `"`+name+`":"`, `"`+name+`":"`+text, 1)))
		}
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		params, err := idempotency.Canonicalize(request)
		if err != nil {
			return
		}
		_, rejection := orders.DecodeParams(params)
		var value any
		require.NoError(t, json.Unmarshal(request, &value)) // as sent
		forbidden := schema.VisitJSON(value, openapi3.VisitAsRequest())
		if forbidden != nil {
			require.Error(t, rejection, "%v", forbidden)
			return
		}
		var invalid *orders.ValidationError
		if rejection != nil {
			require.ErrorAs(t, rejection, &invalid)
			for _, fault := range invalid.Fields {
				require.Regexp(t, beyondSchema, fault.Detail, fault.Pointer)
			}
		}
	})
}
