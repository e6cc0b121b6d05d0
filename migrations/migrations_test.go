package migrations_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/migrations"
	"example.com/orders-api/migrations/dbtest"
)

func newMigrator(t *testing.T, pool *pgxpool.Pool) *migrations.Migrator {
	t.Helper()
	m, err := migrations.New(pool, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func countFiles(t *testing.T) int {
	t.Helper()
	names, err := fs.Glob(migrations.FS(), "*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	return len(names)
}

// schema describes everything the migrations made, one line each. goose's own
// table is left out.
func schema(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		WITH tables AS (
			SELECT oid, relname::text AS name
			FROM pg_class
			WHERE relnamespace = 'public'::regnamespace
				AND relkind IN ('r', 'p', 'v', 'm')
				AND relname <> 'goose_db_version'
		)
		SELECT format('table %s: %s', name, obj_description(oid, 'pg_class'))
		FROM tables
		UNION ALL
		SELECT format('column %s.%s %s %s default %s: %s', name, attname, format_type(atttypid, atttypmod),
			CASE WHEN attnotnull THEN 'not null' ELSE 'null' END,
			pg_get_expr(adbin, adrelid), col_description(tables.oid, attnum))
		FROM tables
		JOIN pg_attribute ON attrelid = tables.oid AND attnum > 0 AND NOT attisdropped
		LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
		UNION ALL
		SELECT format('constraint %s.%s %s', name, conname, pg_get_constraintdef(pg_constraint.oid))
		FROM tables
		JOIN pg_constraint ON conrelid = tables.oid
		UNION ALL
		SELECT format('index %s', indexdef)
		FROM tables
		JOIN pg_indexes ON schemaname = 'public' AND tablename = name
		UNION ALL
		SELECT format('trigger %s', pg_get_triggerdef(pg_trigger.oid))
		FROM tables
		JOIN pg_trigger ON tgrelid = tables.oid AND NOT tgisinternal
		UNION ALL
		SELECT format('function %s', oid::regprocedure)
		FROM pg_proc
		WHERE pronamespace = 'public'::regnamespace
		UNION ALL
		SELECT format('type %s', typname)
		FROM pg_type
		WHERE typnamespace = 'public'::regnamespace AND typtype IN ('d', 'e')
		ORDER BY 1`)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return lines
}

func TestMigrator_upDownUp(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	m := newMigrator(t, pool)
	files := countFiles(t)

	applied, err := m.Up(t.Context())
	require.NoError(t, err)
	require.Equal(t, files, applied)
	first := schema(t, pool)
	require.NotEmpty(t, first)
	applied, err = m.Up(t.Context())
	require.NoError(t, err)
	require.Zero(t, applied)

	for range files {
		name, err := m.Down(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, name)
	}
	require.Empty(t, schema(t, pool))
	name, err := m.Down(t.Context())
	require.NoError(t, err)
	require.Empty(t, name)

	_, err = m.Up(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, schema(t, pool))
	require.Equal(t, first, schema(t, dbtest.New(t)), "dbtest's template has the same schema")
}

func TestMigrator_checkAndStatus(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	m := newMigrator(t, pool)
	require.ErrorIs(t, m.Check(t.Context()), migrations.ErrOutdated)

	_, err := m.Up(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Check(t.Context()))

	newest, err := m.Down(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, m.Check(t.Context()), migrations.ErrOutdated)
	status, err := m.Status(t.Context())
	require.NoError(t, err)
	require.Len(t, status, countFiles(t))
	for i, s := range status {
		require.Equal(t, i < len(status)-1, s.Applied, s.Name)
	}
	require.Equal(t, newest, status[len(status)-1].Name)
}

func TestMigrator_racersOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t, func(c *pgxpool.Config) { c.MaxConns = 8 })
	var racers errgroup.Group
	applied := make([]int, 3)
	for i := range applied {
		m := newMigrator(t, pool)
		racers.Go(func() error {
			var err error
			applied[i], err = m.Up(t.Context())
			return err
		})
	}
	require.NoError(t, racers.Wait())
	require.ElementsMatch(t, []int{countFiles(t), 0, 0}, applied)
	require.Equal(t, schema(t, dbtest.New(t)), schema(t, pool))
}

// checkViolation is the name of the CHECK that err is about, or "".
func checkViolation(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "23514" {
		return pgErr.ConstraintName
	}
	return ""
}

const account = "00000000-0000-4000-8000-000000000001"

// row is a table's row, by column.
type row map[string]any

// with returns the row with some columns changed.
func (r row) with(changes row) row {
	changed := row{}
	for _, columns := range []row{r, changes} {
		for name, value := range columns {
			changed[name] = value
		}
	}
	return changed
}

func insert(ctx context.Context, pool *pgxpool.Pool, table string, r row) error {
	_, err := pool.Exec(ctx, "INSERT INTO "+table+" SELECT * FROM jsonb_populate_record(NULL::"+table+", $1)", r)
	return err
}

func newAccount(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), "INSERT INTO accounts (id, name) VALUES ($1, 'Ann')", account)
	require.NoError(t, err)
}

func TestSchema_finishedHasAResponse(t *testing.T) {
	t.Parallel()
	started := row{
		"id":                "00000000-0000-8000-8000-000000000001",
		"account_id":        account,
		"idempotency_key":   "a-key-of-16-characters",
		"operation":         "create-order",
		"request_method":    "POST",
		"request_path":      "/v1/orders",
		"request_params":    `\x7b7d`,
		"params_hash":       `\x` + "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
		"recovery_point":    "started",
		"lease_token":       "00000000-0000-4000-8000-000000000002",
		"attempt":           1,
		"completer_attempt": 0,
		"locked_at":         time.Now(),
		"last_run_at":       time.Now(),
		"created_at":        time.Now(),
	}
	finished := started.with(row{
		"recovery_point":   "finished",
		"locked_at":        nil,
		"finished_at":      time.Now(),
		"response_code":    201,
		"response_headers": map[string]string{"Location": "/v1/orders/1"},
		"response_body":    `\x7b7d`,
	})
	const broken = "finished_has_response"
	tests := []struct {
		name string
		row  row
		want string
	}{
		{"started and held", started, ""},
		{"started and free", started.with(row{"locked_at": nil}), ""},
		{"finished with a whole response", finished, ""},
		{"finished with an empty body", finished.with(row{"response_body": `\x`}), ""},
		{"finished without a time", finished.with(row{"finished_at": nil}), broken},
		{"finished without a status", finished.with(row{"response_code": nil}), broken},
		{"finished without headers", finished.with(row{"response_headers": nil}), broken},
		{"finished without a body", finished.with(row{"response_body": nil}), broken},
		{"finished and still held", finished.with(row{"locked_at": time.Now()}), broken},
		{"finished with nothing", started.with(row{"recovery_point": "finished", "locked_at": nil}), broken},
		{"unfinished with a response", finished.with(row{"recovery_point": "charge_created"}), broken},
		{"unfinished with a time", started.with(row{"finished_at": time.Now()}), broken},
		{"unfinished with a status", started.with(row{"response_code": 402}), broken},
		{"unfinished with headers", started.with(row{"response_headers": map[string]string{}}), broken},
		{"unfinished with a body", started.with(row{"response_body": `\x7b7d`}), broken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			newAccount(t, pool)
			err := insert(t.Context(), pool, "idempotency_keys", tt.row)
			require.Equal(t, tt.want, checkViolation(err), "%v", err)
			require.Equal(t, tt.want == "", err == nil, "%v", err)
		})
	}
}

func TestSchema_paidHasAnIntent(t *testing.T) {
	t.Parallel()
	pending := row{
		"id":              "00000000-0000-8000-8000-000000000001",
		"account_id":      account,
		"idempotency_key": "a-key-of-16-characters",
		"email":           "ann@example.com",
		"currency":        "eur",
		"amount":          1200,
		"amount_refunded": 0,
		"items":           []any{},
		"metadata":        map[string]string{},
		"payment_method":  "pm_card_visa",
		"status":          "pending",
		"create_attempt":  1,
		"confirm_attempt": 1,
		"created_at":      time.Now(),
	}
	intent := row{"payment_intent_id": "pi_1"}
	paid := pending.with(intent).with(row{"status": "paid", "paid_at": time.Now()})
	const broken = "paid_has_intent"
	tests := []struct {
		name string
		row  row
		want string
	}{
		{"pending without an intent", pending, ""},
		{"pending with an intent", pending.with(intent), ""},
		{"failed without an intent", pending.with(row{"status": "payment_failed"}), ""},
		{"paid", paid, ""},
		{"partially refunded", paid.with(row{"status": "partially_refunded", "amount_refunded": 1}), ""},
		{"refunded", paid.with(row{"status": "refunded", "amount_refunded": 1200}), ""},
		{"paid without an intent", paid.with(row{"payment_intent_id": nil}), broken},
		{"paid without a time", paid.with(row{"paid_at": nil}), broken},
		{"refunded without an intent", paid.with(row{"status": "refunded", "payment_intent_id": nil}), broken},
		{"refunded without a time", paid.with(row{"status": "refunded", "paid_at": nil}), broken},
		{"pending with a time of payment", paid.with(row{"status": "pending"}), broken},
		{"failed with a time of payment", paid.with(row{"status": "payment_failed"}), broken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			newAccount(t, pool)
			err := insert(t.Context(), pool, "orders", tt.row)
			require.Equal(t, tt.want, checkViolation(err), "%v", err)
			require.Equal(t, tt.want == "", err == nil, "%v", err)
		})
	}
}

func TestSchema_refundHasAStatus(t *testing.T) {
	t.Parallel()
	order := row{
		"id":                "00000000-0000-8000-8000-000000000001",
		"account_id":        account,
		"idempotency_key":   "a-key-of-16-characters",
		"email":             "ann@example.com",
		"currency":          "eur",
		"amount":            1200,
		"amount_refunded":   0,
		"items":             []any{},
		"metadata":          map[string]string{},
		"payment_method":    "pm_card_visa",
		"status":            "paid",
		"payment_intent_id": "pi_1",
		"create_attempt":    1,
		"confirm_attempt":   1,
		"created_at":        time.Now(),
		"paid_at":           time.Now(),
	}
	pending := row{
		"id":              "00000000-0000-8000-8000-000000000002",
		"account_id":      account,
		"order_id":        order["id"],
		"idempotency_key": "another-key-of-characters",
		"amount":          700,
		"currency":        "eur",
		"status":          "pending",
		"created_at":      time.Now(),
	}
	made := pending.with(row{"provider_refund_id": "re_1"})
	const noRefund, noFailure = "status_requires_provider_refund_id", "failure_reason_requires_failure"
	tests := []struct {
		name string
		row  row
		want string
	}{
		{"pending without a refund", pending, ""},
		{"pending with a refund", made, ""},
		{"failed without a refund", pending.with(row{"status": "failed", "failure_reason": "charge_already_refunded"}), ""},
		{"failed with a refund", made.with(row{"status": "failed"}), ""},
		{"canceled with a refund", made.with(row{"status": "canceled", "failure_reason": "merchant_request"}), ""},
		{"succeeded", made.with(row{"status": "succeeded", "reason": "duplicate"}), ""},
		{"succeeded without a refund", pending.with(row{"status": "succeeded"}), noRefund},
		{"canceled without a refund", pending.with(row{"status": "canceled"}), noRefund},
		{"waiting for the customer without a refund", pending.with(row{"status": "requires_action"}), noRefund},
		{"succeeded, and a reason why it failed", made.with(row{"status": "succeeded", "failure_reason": "x"}), noFailure},
		{"of nothing", pending.with(row{"amount": 0}), "amount_check"},
		{"for a reason of its own", pending.with(row{"reason": "regret"}), "refund_reason_check"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			newAccount(t, pool)
			require.NoError(t, insert(t.Context(), pool, "orders", order))
			err := insert(t.Context(), pool, "refunds", tt.row)
			require.Equal(t, tt.want, checkViolation(err), "%v", err)
			require.Equal(t, tt.want == "", err == nil, "%v", err)
		})
	}
}
