package api_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
)

func FuzzIdempotencyKeyHeader(f *testing.F) {
	contract := openContract(f)
	grammar := regexp.MustCompile(contract.doc.Components.Schemas["IdempotencyKey"].Value.Pattern)
	for _, line := range []string{
		"", `"`, `""`, `"\"`, "0123456789abcdef", `"0123456789abcdef"`, `"0123456789\"\\cdef"`, `"0123456789abcdef\"`,
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
		if key[0] != '"' {
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
