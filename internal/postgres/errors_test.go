package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

// After such a migration, each prepared statement fails once, and the same request may
// be sent again.
func TestTranslate_changedResultType(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "CREATE TABLE changed AS SELECT 1 AS n")
	require.NoError(t, err)
	read := func() (n int64, err error) {
		err = conn.QueryRow(t.Context(), "SELECT n FROM changed").Scan(&n)
		return n, err
	}
	_, err = read()
	require.NoError(t, err)

	_, err = pool.Exec(t.Context(), "ALTER TABLE changed ALTER n TYPE bigint")
	require.NoError(t, err)
	_, err = read()
	require.ErrorIs(t, postgres.Translate(err), postgres.ErrUnavailable)
	n, err := read()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)

	_, err = conn.Exec(t.Context(), "SELECT DISTINCT n FROM changed FOR UPDATE")
	require.Equal(t, "0A000", postgres.SQLState(err), "another unsupported feature")
	require.NotErrorIs(t, postgres.Translate(err), postgres.ErrUnavailable)
}

// A mistake of the program is no outage, which clients would wait for.
func TestTranslate_unreadableRow(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var n int
	err := pool.QueryRow(t.Context(), "SELECT NULL::int").Scan(&n)
	require.ErrorContains(t, err, "cannot scan NULL")
	require.NotErrorIs(t, postgres.Translate(err), postgres.ErrUnavailable)
}
