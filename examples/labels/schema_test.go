package labels_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
)

// The table is in a schema of its own, because a migration may create it too.
func newPool(t *testing.T, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	pool := idempotencytest.NewPool(t, append(configure, func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["search_path"] = "example, public"
	})...)
	table, err := os.ReadFile("schema.sql")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "CREATE SCHEMA example;"+string(table))
	require.NoError(t, err)
	return pool
}
