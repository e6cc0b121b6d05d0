package receipts_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/receipts"
)

func TestStageTx_twice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := uuid.New()
	f.stage(t, order)
	batch := &pgx.Batch{}
	receipts.StageTx(batch, f.account, order)
	require.ErrorContains(t, f.pool.SendBatch(t.Context(), batch).Close(), "staged_jobs_pkey")
}
