package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
)

// FuzzIdempotencyKeyHeader: whatever a header line is, it is no key or one that
// both of its forms name.
func FuzzIdempotencyKeyHeader(f *testing.F) {
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
