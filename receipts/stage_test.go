package receipts_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/receipts"
)

func TestStageTx_twice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := uuid.New()
	f.stage(t, order)
	batch := &pgx.Batch{}
	receipts.StageTx(batch, f.account, order, uuid.New())
	require.ErrorContains(t, f.pool.SendBatch(t.Context(), batch).Close(), "staged_jobs_pkey")
}

func TestStageTx_event(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(t, "INSERT INTO event_endpoints (account_id, id, url, key_fingerprint) VALUES ($1, $1, 'https://shop.example', '12345678')", f.account)
	order, event := uuid.New(), uuid.New()
	batch := &pgx.Batch{}
	receipts.StageTx(batch, f.account, order, event)
	receipts.StageTx(batch, uuid.New(), uuid.New(), uuid.New())
	require.NoError(t, f.pool.SendBatch(t.Context(), batch).Close())
	rows, err := f.pool.Query(t.Context(), "SELECT id || ' ' || args FROM staged_jobs WHERE kind = 'event'")
	require.NoError(t, err)
	staged, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{event.String() + ` {"type": "order.paid", "order_id": "` + order.String() + `"}`}, staged)
}

func TestReadStats(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(t, `
INSERT INTO staged_jobs (id, account_id, kind, args, created_at, failed_at)
VALUES (gen_random_uuid(), $1, 'receipt', '{}', now(), NULL),
       (gen_random_uuid(), $1, 'receipt', '{}', now() - interval '30 minutes', NULL),
       (gen_random_uuid(), $1, 'receipt', '{}', now() - interval '9 days', now())`, f.account)
	stats, err := jobs.ReadStats(t.Context(), f.pool, receipts.Kind)
	require.NoError(t, err)
	require.Equal(t, 2, stats.Pending)
	require.Equal(t, 1, stats.Failed)
	require.InDelta(t, 30, stats.Oldest.Minutes(), 1)
}
