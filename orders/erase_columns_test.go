package orders_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// keptColumns are the columns without personal data, of each table with rows of an order. A shop needs them as the
// records of a payment, or to reject a key that was used.
var keptColumns = map[string]string{
	"audit_records": "account_id id action resource_type resource_id data created_at",
	"idempotency_keys": "account_id id operation request_path recovery_point lease_token locked_at runs " +
		"updated_at action_required_at created_at finished_at expired_at lost",
	"orders": "account_id id idempotency_key reference currency amount amount_refunded payment_method off_session status payment_intent_id " +
		"create_key_number confirm_key_number created_at paid_at failure_code decline_code cancel_requested_at cancel_requested_by " +
		"erased_at disputes provider_read_at",
	"provider_events": "id type object_id intent_id received_at",
	"refunds": "account_id id order_id idempotency_key amount currency reason status provider_refund_id failure_reason provider_key_number " +
		"provider_sent_at provider_failed_at created_at source cancel_requested_at cancel_requested_by",
	"staged_jobs": "account_id id kind args run_at attempt last_error failed_at acknowledged_at created_at", // args are ids, and addresses are removed from errors
}

// erasedColumns are the others, with the condition that holds for each row of the order after an erasure.
var erasedColumns = map[string]string{
	"idempotency_keys.idempotency_key":  "idempotency_key IS NULL",
	"idempotency_keys.last_error":       "last_error IS NULL",
	"idempotency_keys.fingerprint":      "fingerprint IS NULL",
	"idempotency_keys.request_method":   "request_method IS NULL",
	"idempotency_keys.request_params":   "request_params IS NULL",
	"idempotency_keys.response_body":    "response_body IS NULL",
	"idempotency_keys.response_code":    "response_code IS NULL",
	"idempotency_keys.response_headers": "response_headers IS NULL",
	"orders.email":                      "email IS NULL",
	"orders.items":                      "NOT jsonb_path_exists(items, '$[*].description')",
	"orders.metadata":                   "metadata::text = '{}'",
}

// A new column fails this test until somebody has decided whether an erasure keeps it.
func TestErase_everyColumn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, create("201"), sendReceipts)
	classified := map[string]bool{}
	for table, columns := range keptColumns {
		for column := range strings.FieldsSeq(columns) {
			classified[table+"."+column] = true
		}
	}
	for column := range erasedColumns {
		require.NotContains(t, classified, column, "both kept and erased")
		classified[column] = true
	}
	rows, _ := f.Pool.Query(t.Context(), `
SELECT table_name || '.' || column_name
  FROM information_schema.columns
 WHERE table_schema = current_schema()
   AND table_name = ANY($1)`, slices.Collect(maps.Keys(keptColumns)))
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, column := range columns {
		require.True(t, classified[column], "%s is neither kept nor erased: if it can hold personal data, Erase must remove it", column)
		delete(classified, column)
	}
	require.Empty(t, classified, "these columns do not exist")

	remaining := func(column string) int {
		table, _, _ := strings.Cut(column, ".")
		return f.count(fmt.Sprintf("SELECT count(*) FROM %s WHERE NOT (%s)", table, erasedColumns[column]))
	}
	f.exec("UPDATE idempotency_keys SET last_error = 'no response'")
	for column := range erasedColumns {
		require.NotZero(t, remaining(column), "the order has no %s that could be erased", column)
	}
	require.NoError(t, f.erase())
	for column := range erasedColumns {
		require.Zero(t, remaining(column), column)
	}
}
