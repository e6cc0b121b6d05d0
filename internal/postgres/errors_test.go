package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

// The state of a session is an outage, after which the same request may be sent again. A mistake of the
// program is none, because clients would wait for its end.
func TestTranslate(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "CREATE TABLE changed AS SELECT 1 AS n")
	require.NoError(t, err)
	read := func() error {
		var n int64
		return conn.QueryRow(t.Context(), "SELECT n FROM changed").Scan(&n)
	}
	require.NoError(t, read())
	_, err = pool.Exec(t.Context(), "ALTER TABLE changed ALTER n TYPE bigint")
	require.NoError(t, err)
	require.ErrorIs(t, postgres.Translate(read()), postgres.ErrUnavailable, "after such a migration, each prepared statement fails once")
	require.NoError(t, read())

	// Without default_query_exec_mode, a pooler in transaction mode gives a statement to a session that has
	// not prepared it, or already has one of that name.
	_, err = conn.Exec(t.Context(), "DEALLOCATE ALL", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	_, errTaken := conn.Exec(t.Context(), "PREPARE taken AS SELECT 1; PREPARE taken AS SELECT 1", pgx.QueryExecModeSimpleProtocol)
	for _, err := range []error{read(), errTaken} {
		require.ErrorIs(t, postgres.Translate(err), postgres.ErrUnavailable)
		require.ErrorContains(t, postgres.Translate(err), "set default_query_exec_mode=cache_describe in DATABASE_URL")
	}

	var n int
	err = pool.QueryRow(t.Context(), "SELECT NULL::int").Scan(&n)
	require.ErrorContains(t, err, "cannot scan NULL")
	require.NotErrorIs(t, postgres.Translate(err), postgres.ErrUnavailable)
}
