package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

func TestSchema_domains(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	chars := strings.Repeat
	domains := map[string]struct{ accepts, rejects []string }{
		"amount":        {[]string{"1"}, []string{"0", "-1"}},
		"nonnegative":   {[]string{"0"}, []string{"-1"}},
		"positive":      {[]string{"1"}, []string{"0"}},
		"currency":      {[]string{"eur"}, []string{"EUR", "euro", "eur\n"}},
		"email_address": {[]string{"a@b", chars("e", 254)}, []string{"a@", chars("e", 255)}},
		"error_message": {[]string{"", chars("e", 500)}, []string{chars("e", 501)}},
		"external_id":   {[]string{"x", chars("x", 255)}, []string{"", chars("x", 256)}},
		"fingerprint":   {[]string{`\x` + chars("01", 33)}, []string{`\x` + chars("01", 32)}},
		"http_method":   {[]string{"POST"}, []string{"", chars("X", 17)}},
		"http_path":     {[]string{chars("/", 512)}, []string{"", chars("/", 513)}},
		"idempotency_key": {
			[]string{chars("!", 16), chars("~", 255)},
			[]string{chars("k", 15), chars("k", 256), "0123456789 abcdef", "0123456789abcdef\n", "0123456789abcdefé"},
		},
		"name64":        {[]string{"order_created"}, []string{"", chars("n", 65)}},
		"order_status":  {[]string{"requires_action", "partially_refunded"}, []string{"finished"}},
		"refund_reason": {[]string{"duplicate"}, []string{"regret"}},
		"refund_status": {[]string{"succeeded"}, []string{"paid"}},
		"response_code": {[]string{"200", "499"}, []string{"199", "503"}},
	}
	for domain, values := range domains {
		for _, value := range values.accepts {
			_, err := pool.Exec(t.Context(), "SELECT $1::text::"+domain, value)
			require.NoError(t, err, "%s %q", domain, value)
		}
		for _, value := range values.rejects {
			_, err := pool.Exec(t.Context(), "SELECT $1::text::"+domain, value)
			require.Equal(t, domain+"_check", checkViolation(err), "%s %q: %v", domain, value, err)
		}
	}
	for _, domain := range texts(t, pool, "SELECT typname::text FROM pg_type WHERE typtype = 'd' AND typnamespace = 'public'::regnamespace") {
		_, listed := domains[domain]
		require.True(t, listed, "the table has no values for the domain %s", domain)
	}
}

type row map[string]any

func (r row) with(changes row) row {
	changed := maps.Clone(r)
	maps.Copy(changed, changes)
	return changed
}

const account = "00000000-0000-4000-8000-000000000001"

var (
	startedKey = row{
		"account_id":      account,
		"id":              "00000000-0000-8000-8000-000000000001",
		"idempotency_key": "a-key-of-16-characters",
		"operation":       "create_order",
		"request_method":  "POST",
		"request_path":    "/v1/orders",
		"request_params":  `\x7b7d`,
		"fingerprint":     `\x` + strings.Repeat("01", 33),
		"recovery_point":  "started",
		"lease_token":     "00000000-0000-4000-8000-000000000002",
		"locked_at":       "2026-01-02T03:04:05Z",
		"runs":            1,
		"updated_at":      "2026-01-02T03:04:05Z",
		"lost":            false,
		"created_at":      "2026-01-02T03:04:05Z",
	}
	finishedKey = startedKey.with(row{
		"recovery_point":   "finished",
		"locked_at":        nil,
		"finished_at":      "2026-01-02T03:04:06Z",
		"response_code":    201,
		"response_headers": row{"Location": "/v1/orders/1"},
		"response_body":    `\x7b7d`,
	})
	expiredKey = finishedKey.with(row{
		"idempotency_key": nil, "request_method": nil, "request_params": nil, "fingerprint": nil,
		"response_code": nil, "response_headers": nil, "response_body": nil,
		"expired_at": "2026-01-05T03:04:06Z",
	})

	pendingOrder = row{
		"account_id":         account,
		"id":                 "00000000-0000-8000-8000-000000000001",
		"idempotency_key":    "a-key-of-16-characters",
		"email":              "ann@example.com",
		"currency":           "eur",
		"amount":             1200,
		"amount_refunded":    0,
		"items":              []any{},
		"metadata":           row{},
		"payment_method":     "pm_card_visa",
		"off_session":        false,
		"status":             "pending",
		"create_key_number":  1,
		"confirm_key_number": 1,
		"created_at":         "2026-01-02T03:04:05Z",
	}
	paidOrder   = pendingOrder.with(row{"status": "paid", "payment_intent_id": "pi_1", "paid_at": "2026-01-02T03:04:06Z"})
	failedOrder = pendingOrder.with(row{"status": "payment_failed", "failure_code": "card_declined"})

	pendingRefund = row{
		"account_id":      account,
		"id":              "00000000-0000-8000-8000-000000000002",
		"order_id":        paidOrder["id"],
		"idempotency_key": "another-key-of-characters",
		"amount":          700,
		"currency":        "eur",
		"status":          "pending",
		"created_at":      "2026-01-02T03:04:05Z",

		"provider_key_number": 1,
	}
	madeRefund = pendingRefund.with(row{"provider_refund_id": "re_1", "status": "succeeded"})
)

func TestSchema_checks(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO accounts (id, name) VALUES ($1, 'Ann')", account)
	require.NoError(t, err)
	const (
		key        = "key_is_consistent"
		order      = "order_is_consistent"
		providerID = "status_requires_provider_refund_id"
		failure    = "failure_reason_requires_failure"
	)
	for name, test := range map[string]struct {
		table    string
		row      row
		violates string // "" for a row that is accepted
	}{
		"key: started, leased":               {"idempotency_keys", startedKey, ""},
		"key: started, released":             {"idempotency_keys", startedKey.with(row{"locked_at": nil}), ""},
		"key: finished":                      {"idempotency_keys", finishedKey, ""},
		"key: expired":                       {"idempotency_keys", expiredKey, ""},
		"key: expired with key":              {"idempotency_keys", expiredKey.with(row{"idempotency_key": "a-key-of-16-characters"}), key},
		"key: expired with request":          {"idempotency_keys", expiredKey.with(row{"request_params": `\x7b7d`}), key},
		"key: expired with body":             {"idempotency_keys", expiredKey.with(row{"response_body": `\x7b7d`}), key},
		"key: expired, unfinished":           {"idempotency_keys", expiredKey.with(row{"recovery_point": "started", "finished_at": nil}), key},
		"key: started without request":       {"idempotency_keys", startedKey.with(row{"request_params": nil}), key},
		"key: finished without time":         {"idempotency_keys", finishedKey.with(row{"finished_at": nil}), key},
		"key: finished without status":       {"idempotency_keys", finishedKey.with(row{"response_code": nil}), key},
		"key: finished without headers":      {"idempotency_keys", finishedKey.with(row{"response_headers": nil}), key},
		"key: finished without body":         {"idempotency_keys", finishedKey.with(row{"response_body": nil}), key},
		"key: finished, leased":              {"idempotency_keys", finishedKey.with(row{"locked_at": "2026-01-02T03:04:05Z"}), key},
		"key: finished without response":     {"idempotency_keys", startedKey.with(row{"recovery_point": "finished", "locked_at": nil}), key},
		"key: unfinished with time":          {"idempotency_keys", startedKey.with(row{"finished_at": "2026-01-02T03:04:06Z"}), key},
		"key: unfinished with status":        {"idempotency_keys", startedKey.with(row{"response_code": 402}), key},
		"key: unfinished with headers":       {"idempotency_keys", startedKey.with(row{"response_headers": row{}}), key},
		"key: unfinished with body":          {"idempotency_keys", startedKey.with(row{"response_body": `\x7b7d`}), key},
		"order: pending":                     {"orders", pendingOrder, ""},
		"order: failed without intent":       {"orders", failedOrder, ""},
		"order: failed without reason":       {"orders", failedOrder.with(row{"failure_code": nil}), order},
		"order: failed, decline code alone":  {"orders", failedOrder.with(row{"failure_code": nil, "decline_code": "lost_card"}), order},
		"order: pending with reason":         {"orders", pendingOrder.with(row{"failure_code": "card_declined"}), order},
		"order: pending with decline code":   {"orders", pendingOrder.with(row{"decline_code": "lost_card"}), order},
		"order: paid with reason":            {"orders", paidOrder.with(row{"failure_code": "card_declined"}), order},
		"order: paid":                        {"orders", paidOrder, ""},
		"order: partially refunded":          {"orders", paidOrder.with(row{"status": "partially_refunded", "amount_refunded": 1}), ""},
		"order: refunded too much":           {"orders", paidOrder.with(row{"status": "refunded", "amount_refunded": 1201}), order},
		"order: items are no list":           {"orders", paidOrder.with(row{"items": row{}}), order},
		"order: paid without intent":         {"orders", paidOrder.with(row{"payment_intent_id": nil}), order},
		"order: paid without time":           {"orders", paidOrder.with(row{"paid_at": nil}), order},
		"order: pending with time":           {"orders", paidOrder.with(row{"status": "pending"}), order},
		"order: erased":                      {"orders", paidOrder.with(row{"email": nil, "erased_at": "2026-01-02T03:04:06Z"}), ""},
		"order: failed with time":            {"orders", failedOrder.with(row{"paid_at": "2026-01-02T03:04:06Z"}), order},
		"refund: pending":                    {"refunds", pendingRefund, ""},
		"refund: succeeded":                  {"refunds", madeRefund.with(row{"reason": "duplicate"}), ""},
		"refund: failed here":                {"refunds", pendingRefund.with(row{"status": "failed", "failure_reason": "charge_already_refunded"}), ""},
		"refund: failed at the provider":     {"refunds", madeRefund.with(row{"status": "failed"}), ""},
		"refund: canceled":                   {"refunds", madeRefund.with(row{"status": "canceled", "failure_reason": "merchant_request"}), ""},
		"refund: succeeded without id":       {"refunds", pendingRefund.with(row{"status": "succeeded"}), providerID},
		"refund: succeeded with failure":     {"refunds", madeRefund.with(row{"failure_reason": "x"}), failure},
		"refund: of the dashboard":           {"refunds", madeRefund.with(row{"source": "provider", "idempotency_key": nil}), ""},
		"refund: of the dashboard, with key": {"refunds", madeRefund.with(row{"source": "provider"}), "provider_has_no_key"},
		"refund: ours, row was lost":         {"refunds", madeRefund.with(row{"idempotency_key": nil}), ""},
		"refund: of an unknown source":       {"refunds", madeRefund.with(row{"source": "bank", "idempotency_key": nil}), "source_is_known"},
	} {
		err := insert(t.Context(), pool, test.table, test.row)
		require.Equal(t, test.violates, checkViolation(err), "%s: %v", name, err)
		require.Equal(t, test.violates == "", err == nil, "%s: %v", name, err)
	}
}

// insert inserts the row, and before a refund its order, in a transaction that it rolls back.
func insert(ctx context.Context, pool *pgxpool.Pool, table string, r row) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // nothing is to be committed
	const statement = "INSERT INTO %[1]s SELECT * FROM jsonb_populate_record(NULL::%[1]s, $1)"
	if table == "refunds" {
		if _, err := tx.Exec(ctx, fmt.Sprintf(statement, "orders"), paidOrder); err != nil {
			return err
		}
	}
	if table == "refunds" && r["source"] == nil {
		r = r.with(row{"source": "api"})
	}
	_, err = tx.Exec(ctx, fmt.Sprintf(statement, table), r)
	return err
}

func checkViolation(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "23514" {
		return pgErr.ConstraintName
	}
	return ""
}

// Except in accounts and in the provider's events, which name none, account_id is in every table, unique index and foreign key, and each primary key
// begins with it (R20, the account in every table).
func TestSchema_accountInEveryTable(t *testing.T) {
	t.Parallel()
	const tables = `
SELECT c.oid, relname, attnum
  FROM pg_class AS c
  LEFT JOIN pg_attribute ON attrelid = c.oid AND attname = 'account_id' AND attnotnull
 WHERE relnamespace = 'public'::regnamespace
   AND relkind = 'r'
   AND relname NOT IN ('accounts', 'provider_events', 'provider_event_place', 'goose_db_version')`
	pool := dbtest.New(t)
	for violation, query := range map[string]string{
		"tables without account_id": "SELECT relname::text FROM tables WHERE attnum IS NULL",
		"unique indexes without account_id": `
SELECT indexrelid::regclass::text
  FROM pg_index
  JOIN tables ON oid = indrelid
 WHERE indisunique
   AND NOT attnum = ANY (indkey)`,
		"primary keys that do not begin with account_id": `
SELECT indexrelid::regclass::text
  FROM pg_index
  JOIN tables ON oid = indrelid
 WHERE indisprimary
   AND attnum <> indkey[0]`,
		"foreign keys without account_id": `
SELECT conname::text
  FROM pg_constraint
  JOIN tables AS ours ON ours.oid = conrelid
  JOIN tables AS theirs ON theirs.oid = confrelid
 WHERE NOT EXISTS (SELECT FROM unnest(conkey, confkey) AS k (a, b) WHERE a = ours.attnum AND b = theirs.attnum)`,
	} {
		require.Empty(t, texts(t, pool, "WITH tables AS ("+tables+") "+query), violation)
	}
}

// An upgrade of a library on the server can change the order of another collation. An index would then
// miss rows, so two orders could have one reference (R26, one order per reference).
func TestSchema_indexedTextsHaveCollationC(t *testing.T) {
	t.Parallel()
	require.Empty(t, texts(t, dbtest.New(t), `
SELECT format('%s: %s', indexrelid::regclass, pg_get_indexdef(indexrelid, n::integer, false))
  FROM pg_index
  JOIN pg_class ON pg_class.oid = indrelid
 CROSS JOIN LATERAL unnest(indcollation) WITH ORDINALITY AS key (collation_id, n)
 WHERE relnamespace = 'public'::regnamespace
   AND collation_id NOT IN (0, 'pg_catalog."C"'::regcollation)`),
		`declare the column with COLLATE "C"`)
}

func texts(t *testing.T, pool *pgxpool.Pool, query string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), query)
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return found
}
