package jobs_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

var by = audit.Operator{Actor: "ada", Reason: "refunded by hand"}

func report(t *testing.T, pool *pgxpool.Pool, accountID uuid.UUID, found string, args any, objects ...string) (id uuid.UUID) {
	t.Helper()
	batch := &pgx.Batch{}
	id = jobs.Report(batch, accountID, found, args, objects...)
	require.NoError(t, pool.SendBatch(t.Context(), batch).Close())
	return id
}

// open returns what is open, by its id, and requires that it needs an operator.
func open(t *testing.T, pool *pgxpool.Pool) map[uuid.UUID]jobs.Job {
	t.Helper()
	list, err := jobs.Open(t.Context(), pool)
	require.NoError(t, err)
	failed, err := jobs.ListFailed(t.Context(), pool)
	require.NoError(t, err)
	require.ElementsMatch(t, list, failed)
	found := map[uuid.UUID]jobs.Job{}
	for _, j := range list {
		found[j.ID] = j
	}
	require.Len(t, found, len(list))
	return found
}

func TestReport_same(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	account := uuid.New()
	id := report(t, pool, account, "amount_mismatch", map[string]int{"local": 1}, "pi_1", "re_1")
	first := open(t, pool)[id]
	require.Equal(t, jobs.Job{
		AccountID: account, ID: id, Kind: "discrepancy", Args: []byte(`{"local": 1}`), LastError: "amount_mismatch",
		CreatedAt: first.CreatedAt, FailedAt: &first.CreatedAt,
	}, first)

	require.Equal(t, id, report(t, pool, account, "amount_mismatch", map[string]int{"local": 2}, "pi_1", "re_1"))
	first.Args = []byte(`{"local": 2}`)
	require.Equal(t, map[uuid.UUID]jobs.Job{id: first}, open(t, pool))

	report(t, pool, account, "amount_mismatch", struct{}{}, "pi_1")
	report(t, pool, account, "duplicate_charge", struct{}{}, "pi_1", "re_1")
	report(t, pool, uuid.Nil, "amount_mismatch", struct{}{}, "pi_1", "re_1")
	require.Len(t, open(t, pool), 4, "another object, account or what was found is another discrepancy")
	counts, err := jobs.CountOpen(t.Context(), pool)
	require.NoError(t, err)
	require.ElementsMatch(t, []jobs.Found{{What: "amount_mismatch", Open: 3}, {What: "duplicate_charge", Open: 1}}, counts)
}

// What is gone is deleted, also if it was acknowledged, so that it is open if it is found again.
func TestResolve(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	account := uuid.New()
	id := report(t, pool, account, "open_intent", struct{}{}, "pi_1")
	other := report(t, pool, account, "open_intent", struct{}{}, "pi_2")
	for range 2 {
		require.NoError(t, jobs.Resolve(t.Context(), pool, id))
		require.NotContains(t, open(t, pool), id)
		require.Contains(t, open(t, pool), other)
	}
	report(t, pool, account, "open_intent", struct{}{}, "pi_1")
	require.Contains(t, open(t, pool), id)
}

// An acknowledged discrepancy is not listed again, although its arguments are up to date.
func TestDeleteFailed_discrepancy(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	account, order := uuid.New(), uuid.New()
	args := map[string]any{"order_id": order, "n": 1}
	id := report(t, pool, account, "duplicate_charge", args, "pi_1")
	other := report(t, pool, uuid.Nil, "events_missed", struct{}{})
	for n := range int64(2) {
		ended, err := jobs.DeleteFailed(t.Context(), pool, id, by)
		require.NoError(t, err)
		require.Equal(t, 1-n, ended)
		args["n"] = n
		report(t, pool, account, "duplicate_charge", args, "pi_1")
		require.NotContains(t, open(t, pool), id)
		require.Contains(t, open(t, pool), other)
		ofOrder, err := jobs.With(t.Context(), pool, account, map[string]any{"order_id": order})
		require.NoError(t, err)
		require.Empty(t, ofOrder)
		var stored int64
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT args->'n' FROM staged_jobs WHERE id = $1", id).Scan(&stored))
		require.Equal(t, n, stored)
	}
	ended, err := jobs.DeleteFailed(t.Context(), pool, other, by)
	require.NoError(t, err)
	require.EqualValues(t, 1, ended, "one of no account")
	require.Empty(t, open(t, pool))

	records, err := audit.Records(t.Context(), pool, account, order)
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, "discrepancy.acknowledge", records[0].Action)
	require.JSONEq(t, `{"found": "duplicate_charge", "by": "ada", "reason": "refunded by hand"}`, string(records[0].Data))
}

// No worker can deal with a discrepancy, whatever an operator sends.
func TestDiscrepancy_neverClaimed(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	id := report(t, pool, uuid.New(), "duplicate_charge", struct{}{}, "pi_1")
	for _, named := range []uuid.UUID{uuid.Nil, id} {
		retried, err := jobs.RetryFailed(t.Context(), pool, named, by)
		require.NoError(t, err)
		require.Zero(t, retried)
	}
	w := newWorker(pool, func(context.Context, jobs.Job) error { panic("claimed") })
	w.Kind = jobs.Discrepancy
	requirePass(t, w, jobs.Result{})
	require.Contains(t, open(t, pool), id)
	_, err := pool.Exec(t.Context(), "UPDATE staged_jobs SET failed_at = NULL")
	require.ErrorContains(t, err, "discrepancy_is_failed")
}

// Discrepancies are listed first, because they can mean that a card was charged twice.
func TestListFailed_discrepanciesFirst(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	batch := &pgx.Batch{}
	jobs.StageTx(batch, uuid.New(), uuid.New(), "receipt", struct{}{})
	batch.Queue("UPDATE staged_jobs SET failed_at = now() - interval '1 day'")
	require.NoError(t, pool.SendBatch(t.Context(), batch).Close())
	id := report(t, pool, uuid.New(), "duplicate_charge", struct{}{}, "pi_1")
	list, err := jobs.ListFailed(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, id, list[0].ID)
	stats, err := jobs.ReadStats(t.Context(), pool, "receipt")
	require.NoError(t, err)
	require.Equal(t, map[string]jobs.Stats{"receipt": {Kind: "receipt", Failed: 1}}, stats)
}
