package migrations_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

func TestSchema_domains(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	tests := []struct {
		name    string
		domain  string
		value   string
		refused bool
	}{
		{"a key of 16 characters", "client_key", "0123456789abcdef", false},
		{"a key of 255 characters", "client_key", strings.Repeat("~", 255), false},
		{"a key of the first visible characters", "client_key", strings.Repeat("!", 16), false},
		{"a key of 15 characters", "client_key", "0123456789abcde", true},
		{"a key of 256 characters", "client_key", strings.Repeat("k", 256), true},
		{"a key with a space", "client_key", "0123456789 abcdef", true},
		{"a key with a line feed at its end", "client_key", "0123456789abcdef\n", true},
		{"a key with a letter that is not ASCII", "client_key", "0123456789abcdefé", true},
		{"a name", "short_name", "order_created", false},
		{"no name", "short_name", "", true},
		{"a name of 65 characters", "short_name", strings.Repeat("n", 65), true},
		{"a reference of 255 characters", "reference", strings.Repeat("r", 255), false},
		{"no reference", "reference", "", true},
		{"a reference of 256 characters", "reference", strings.Repeat("r", 256), true},
		{"a method", "http_method", "POST", false},
		{"no method", "http_method", "", true},
		{"a path of 512 characters", "http_path", strings.Repeat("/", 512), false},
		{"a path of 513 characters", "http_path", strings.Repeat("/", 513), true},
		{"the status of a stored answer", "stored_status", "402", false},
		{"a status that is never stored", "stored_status", "503", true},
		{"a status below all others", "stored_status", "199", true},
		{"a fingerprint", "fingerprint", `\x` + strings.Repeat("01", 33), false},
		{"a fingerprint without a version", "fingerprint", `\x` + strings.Repeat("01", 32), true},
		{"no words about an error", "error_text", "", false},
		{"too many words about an error", "error_text", strings.Repeat("e", 501), true},
		{"an address", "email_address", "a@b", false},
		{"an address of two characters", "email_address", "a@", true},
		{"a currency", "currency", "eur", false},
		{"a currency in capitals", "currency", "EUR", true},
		{"a currency and a line feed", "currency", "eur\n", true},
		{"one cent", "price", "1", false},
		{"nothing", "price", "0", true},
		{"a status of an order", "order_status", "partially_refunded", false},
		{"another status", "order_status", "finished", true},
		{"no attempt yet", "counter", "0", false},
		{"less than none", "counter", "-1", true},
		{"the first attempt", "attempt_number", "1", false},
		{"an attempt before it", "attempt_number", "0", true},
	}
	tested := map[string]bool{}
	for _, tt := range tests {
		tested[tt.domain] = true
		t.Run(tt.name, func(t *testing.T) {
			_, err := pool.Exec(t.Context(), "SELECT $1::text::"+tt.domain, tt.value)
			require.Equal(t, tt.refused, err != nil, "%v", err)
			require.Equal(t, tt.refused, checkViolation(err) == tt.domain+"_check", "%v", err)
		})
	}
	rows, err := pool.Query(t.Context(), "SELECT typname::text FROM pg_type WHERE typtype = 'd' AND typnamespace = 'public'::regnamespace")
	require.NoError(t, err)
	domains, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, domain := range domains {
		require.True(t, tested[domain], domain)
	}
}
