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
		{"a key of 16 characters", "idempotency_key", "0123456789abcdef", false},
		{"a key of 255 characters", "idempotency_key", strings.Repeat("~", 255), false},
		{"a key of the first visible characters", "idempotency_key", strings.Repeat("!", 16), false},
		{"a key of 15 characters", "idempotency_key", "0123456789abcde", true},
		{"a key of 256 characters", "idempotency_key", strings.Repeat("k", 256), true},
		{"a key with a space", "idempotency_key", "0123456789 abcdef", true},
		{"a key with a line feed at its end", "idempotency_key", "0123456789abcdef\n", true},
		{"a key with a letter that is not ASCII", "idempotency_key", "0123456789abcdefé", true},
		{"a name", "name64", "order_created", false},
		{"no name", "name64", "", true},
		{"a name of 65 characters", "name64", strings.Repeat("n", 65), true},
		{"a reference of 255 characters", "external_id", strings.Repeat("r", 255), false},
		{"no reference", "external_id", "", true},
		{"a reference of 256 characters", "external_id", strings.Repeat("r", 256), true},
		{"a method", "http_method", "POST", false},
		{"no method", "http_method", "", true},
		{"a path of 512 characters", "http_path", strings.Repeat("/", 512), false},
		{"a path of 513 characters", "http_path", strings.Repeat("/", 513), true},
		{"the status of a stored answer", "response_code", "402", false},
		{"a status that is never stored", "response_code", "503", true},
		{"a status below all others", "response_code", "199", true},
		{"a fingerprint", "fingerprint", `\x` + strings.Repeat("01", 33), false},
		{"a fingerprint without a version", "fingerprint", `\x` + strings.Repeat("01", 32), true},
		{"no words about an error", "error_message", "", false},
		{"too many words about an error", "error_message", strings.Repeat("e", 501), true},
		{"an address", "email_address", "a@b", false},
		{"an address of two characters", "email_address", "a@", true},
		{"a currency", "currency", "eur", false},
		{"a currency in capitals", "currency", "EUR", true},
		{"a currency and a line feed", "currency", "eur\n", true},
		{"one cent", "amount", "1", false},
		{"nothing", "amount", "0", true},
		{"a status of an order", "order_status", "partially_refunded", false},
		{"another status", "order_status", "finished", true},
		{"a status of an order that waits for its customer", "order_status", "requires_action", false},
		{"a status of a refund", "refund_status", "succeeded", false},
		{"another status of a refund", "refund_status", "paid", true},
		{"a reason for a refund", "refund_reason", "duplicate", false},
		{"another reason", "refund_reason", "regret", true},
		{"no attempt yet", "attempt_count", "0", false},
		{"less than none", "attempt_count", "-1", true},
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
