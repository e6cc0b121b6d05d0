package receipts_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/receipts"
)

func TestStageTx_twice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := uuid.New()
	f.stage(t, order)
	f.stage(t, order)
	require.Len(t, f.jobs(t), 1)
}

func TestReadStats(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(t, `
INSERT INTO staged_jobs (id, account_id, kind, args, created_at, failed_at)
VALUES (gen_random_uuid(), $1, 'receipt', '{}', now(), NULL),
       (gen_random_uuid(), $1, 'receipt', '{}', now() - interval '30 minutes', NULL),
       (gen_random_uuid(), $1, 'receipt', '{}', now() - interval '9 days', now())`, f.account)
	all, err := jobs.ReadStats(t.Context(), f.pool, receipts.Kind)
	require.NoError(t, err)
	stats := all[receipts.Kind]
	require.Equal(t, 2, stats.Pending)
	require.Equal(t, 1, stats.Failed)
	require.InDelta(t, 30, stats.Oldest.Minutes(), 1)
}
