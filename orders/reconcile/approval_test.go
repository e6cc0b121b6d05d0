package reconcile_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders"
)

// A job waits for a customer's approval as long as the charge window lasts. Nothing is charged before, so that is no
// difference.
func TestRun_jobWaitsForApproval(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 0, 1)
	require.Zero(t, f.create(challengeCard))
	batch := &pgx.Batch{}
	orders.StageChange(batch, f.Account, orderID(f.Account, orderKey))
	require.NoError(t, f.Pool.SendBatch(t.Context(), batch).Close())
	require.Empty(t, f.discrepancies())
	require.Equal(t, 1, f.staged())
}
