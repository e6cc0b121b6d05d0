//go:build linux || darwin

package dbtest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

func TestNew(t *testing.T) {
	t.Parallel()
	one, two := dbtest.New(t), dbtest.New(t, func(c *pgxpool.Config) { c.MaxConns = 9 })
	require.EqualValues(t, 4, one.Config().MaxConns)
	require.EqualValues(t, 9, two.Config().MaxConns)
	_, err := one.Exec(t.Context(), "INSERT INTO accounts (id, name) VALUES (gen_random_uuid(), 'Ann')")
	require.NoError(t, err)
	var n int
	require.NoError(t, two.QueryRow(t.Context(), "SELECT count(*) FROM accounts").Scan(&n))
	require.Zero(t, n)

	var name string
	require.True(t, t.Run("dropped after a test that passes", func(t *testing.T) {
		require.NoError(t, dbtest.New(t).QueryRow(t.Context(), "SELECT current_database()").Scan(&name))
	}))
	require.NoError(t, one.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname = $1", name).Scan(&n))
	require.Zero(t, n)
}

// role is the variable that makes TestAsChild a test in its own process. Otherwise it does nothing.
const role = "DBTEST_TEST_ROLE"

func TestAsChild(t *testing.T) {
	if os.Getenv(role) != "" {
		dbtest.New(t)
	}
}

func TestServer_missing(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), executable, "-test.run=^TestAsChild$", "-test.v")
	cmd.Env = append(os.Environ(), role+"=1", "DATABASE_URL=", "DBTEST_SERVER=", "PG_BIN="+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "no database server")
	require.NotContains(t, string(out), "SKIP")
}
