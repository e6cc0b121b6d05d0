package migrations_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

// Whoever takes only the engine makes its tables with one file, which comes to the
// same as all the migrations.
func TestEngineSchema(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../docs/guides/engine.sql")
	require.NoError(t, err)
	up, down, found := strings.Cut(string(file), "-- +goose Down\n")
	require.True(t, found)

	alone := dbtest.Empty(t)
	_, err = alone.Exec(t.Context(), up)
	require.NoError(t, err)
	require.Equal(t, engineTables(t, dbtest.New(t)), engineTables(t, alone))
	_, err = alone.Exec(t.Context(), down)
	require.NoError(t, err)
	require.Empty(t, engineTables(t, alone))
}

// engineTables describes the engine's tables and of the one that its tests use: columns, constraints, indexes,
// their domains and how they are stored.
func engineTables(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
WITH tables AS (
    SELECT oid, relname, reloptions
      FROM pg_class
     WHERE oid IN (to_regclass('accounts'), to_regclass('idempotency_keys'), to_regclass('audit_records'))
)
SELECT format('%s stored with %s', relname, (SELECT array_agg(o ORDER BY o) FROM unnest(reloptions) AS o))
  FROM tables
 UNION ALL
SELECT format('%s.%s %s %s %s', relname, attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid))
  FROM tables
       JOIN pg_attribute ON attrelid = tables.oid AND attnum > 0 AND NOT attisdropped
       LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
 UNION ALL
SELECT format('%s %s', conname, pg_get_constraintdef(pg_constraint.oid))
  FROM tables
       JOIN pg_constraint ON conrelid = tables.oid
 UNION ALL
SELECT format('%s', pg_get_indexdef(indexrelid))
  FROM tables
       JOIN pg_index ON indrelid = tables.oid
 UNION ALL
SELECT DISTINCT format('%s %s', typname, pg_get_constraintdef(pg_constraint.oid))
  FROM tables
       JOIN pg_attribute ON attrelid = tables.oid
       JOIN pg_type ON pg_type.oid = atttypid AND typtype = 'd'
       JOIN pg_constraint ON contypid = pg_type.oid
 ORDER BY 1`)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return lines
}
