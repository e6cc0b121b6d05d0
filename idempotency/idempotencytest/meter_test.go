package idempotencytest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
)

func TestMeter_counts(t *testing.T) {
	t.Parallel()
	meter := idempotencytest.NewMeter()
	pool := idempotencytest.NewPool(t, meter.Configure)
	require.Positive(t, meter.RoundTrips(), "connecting takes round trips")
	require.Zero(t, meter.Commits())

	const statement = "SELECT generate_series(1, $1::int)"
	var roundTrips []int
	for range 2 {
		meter.Reset()
		rows, err := pool.Query(t.Context(), statement, 10_000) // a response of many reads
		require.NoError(t, err)
		numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
		require.NoError(t, err)
		require.Len(t, numbers, 10_000)
		roundTrips = append(roundTrips, meter.RoundTrips())
	}
	require.Equal(t, []int{2, 1}, roundTrips, "the first execution prepares the statement")
	require.Zero(t, meter.Commits(), "a statement outside a transaction has no COMMIT")

	meter.Reset()
	for range 3 {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
	}
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 8, meter.RoundTrips())
	require.Equal(t, 3, meter.Commits())
}
