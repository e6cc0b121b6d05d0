package receipts_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/receipts"
)

func TestStageTxBelongsToTheTransaction(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	tx, err := shop.pool.Begin(t.Context())
	require.NoError(t, err)
	batch := &pgx.Batch{}
	receipts.StageTx(batch, shop.account, uuid.New())
	require.NoError(t, tx.SendBatch(t.Context(), batch).Close())
	require.NoError(t, tx.Rollback(t.Context()))
	require.Empty(t, shop.jobs(t))
}

func TestStageTxTwiceForAnOrderFails(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	order := uuid.New()
	shop.stage(t, order)
	batch := &pgx.Batch{}
	receipts.StageTx(batch, shop.account, order)
	require.ErrorContains(t, shop.pool.SendBatch(t.Context(), batch).Close(), "staged_jobs_pkey")
}
