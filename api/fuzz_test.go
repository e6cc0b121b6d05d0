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

// FuzzIdempotencyKeyHeader: a header line names a key exactly when it is in the
// contract's grammar, and both of a key's forms name it.
func FuzzIdempotencyKeyHeader(f *testing.F) {
	contract, err := loadContract()
	require.NoError(f, err)
	grammar := regexp.MustCompile(contract.doc.Components.Schemas["IdempotencyKey"].Value.Pattern)
	for _, line := range []string{
		"", " ", `"`, `""`, `"\"`, `\`, "0123456789abcdef", `"0123456789abcdef"`, `"0123456789\"\\cdef"`, `"0123456789abcdef\"`,
		`"0123456789abcdef";a=1`, "0123456789abcdef, 0123456789abcdef", `0123456789"abcdef`, "0123456789\tabcdef", "0123456789abcdeé",
		strings.Repeat("k", 255), strings.Repeat("k", 256), `"` + strings.Repeat(`\"`, 255) + `"`, " \t0123456789abcdef\t ",
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
		require.Contains(t, []string{string(key), quoted}, canonical(line), "nothing else names it")

		_, err = api.ReadKey(http.Header{"Idempotency-Key": {line, line}})
		require.ErrorIs(t, err, idempotency.ErrInvalidKey)
	})
}

// canonical is the line without the blanks around it, which HTTP does not count.
func canonical(line string) string { return strings.Trim(line, " \t") }

// FuzzOrderRequest: no request is taken that the contract's schema forbids. One
// that the schema allows is refused only for what a validator of it does not
// look at: the total, the address and the names of notes.
func FuzzOrderRequest(f *testing.F) {
	contract, err := loadContract()
	require.NoError(f, err)
	schema := contract.doc.Components.Schemas["OrderRequest"].Value
	beyondSchema := regexp.MustCompile(`the total must be|must be an email address|the name must be`)
	f.Add([]byte(orderBody()))
	f.Fuzz(func(t *testing.T, request []byte) {
		params, err := idempotency.Canonicalize(request)
		if err != nil {
			return
		}
		_, refusal := orders.DecodeParams(params)
		var value any
		require.NoError(t, json.Unmarshal(request, &value)) // as it was sent
		forbidden := schema.VisitJSON(value, openapi3.VisitAsRequest())
		if forbidden != nil {
			require.Error(t, refusal, "%v", forbidden)
			return
		}
		var invalid *orders.ValidationError
		if refusal != nil {
			require.ErrorAs(t, refusal, &invalid)
			for _, fault := range invalid.Fields {
				require.Regexp(t, beyondSchema, fault.Message, fault.Pointer)
			}
		}
	})
}
