package findings_test

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/operations/audit"
	"example.com/orders-api/operations/findings"
)

func queue(t *testing.T, pool *pgxpool.Pool, accountID uuid.UUID, kind string, data any, objects ...string) (id uuid.UUID) {
	t.Helper()
	batch := &pgx.Batch{}
	id = findings.Queue(batch, accountID, kind, data, objects...)
	require.NoError(t, pool.SendBatch(t.Context(), batch).Close())
	return id
}

func open(t *testing.T, pool *pgxpool.Pool) map[uuid.UUID]findings.Finding {
	t.Helper()
	list, err := findings.Open(t.Context(), pool)
	require.NoError(t, err)
	found := map[uuid.UUID]findings.Finding{}
	for _, f := range list {
		found[f.ID] = f
	}
	require.Len(t, found, len(list))
	return found
}

func TestQueue_sameFinding(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	account := uuid.New()
	id := queue(t, pool, account, "amount_mismatch", map[string]int{"local": 1}, "pi_1", "re_1")
	first := open(t, pool)[id]
	require.Equal(t, findings.Finding{
		AccountID: account, ID: id, Kind: "amount_mismatch", Data: json.RawMessage(`{"local": 1}`), FoundAt: first.FoundAt,
	}, first)

	require.Equal(t, id, queue(t, pool, account, "amount_mismatch", map[string]int{"local": 2}, "pi_1", "re_1"))
	first.Data = json.RawMessage(`{"local": 2}`)
	require.Equal(t, map[uuid.UUID]findings.Finding{id: first}, open(t, pool))

	queue(t, pool, account, "amount_mismatch", struct{}{}, "pi_1")
	queue(t, pool, account, "duplicate_charge", struct{}{}, "pi_1", "re_1")
	queue(t, pool, uuid.Nil, "amount_mismatch", struct{}{}, "pi_1", "re_1")
	require.Len(t, open(t, pool), 4, "another object, kind or account is another finding")
	counts, err := findings.Count(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"amount_mismatch": 3, "duplicate_charge": 1}, counts)
}

// A resolved finding that is found again is open again.
func TestResolve(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	account := uuid.New()
	id := queue(t, pool, account, "open_intent", struct{}{}, "pi_1")
	other := queue(t, pool, account, "open_intent", struct{}{}, "pi_2")
	found := open(t, pool)[id]
	for range 2 {
		require.NoError(t, findings.Resolve(t.Context(), pool, account, id))
		require.NotContains(t, open(t, pool), id)
		require.Contains(t, open(t, pool), other)
	}
	queue(t, pool, account, "open_intent", struct{}{}, "pi_1")
	require.Equal(t, found, open(t, pool)[id])
}

// An acknowledged finding is never open again.
func TestAcknowledge(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	account := uuid.New()
	by := audit.Operator{Actor: "ada", Reason: "refunded by hand"}
	id := queue(t, pool, account, "duplicate_charge", struct{}{}, "pi_1")
	other := queue(t, pool, uuid.Nil, "events_missed", struct{}{})
	for _, acknowledged := range []bool{true, false} {
		got, err := findings.Acknowledge(t.Context(), pool, id, by)
		require.NoError(t, err)
		require.Equal(t, acknowledged, got)
		queue(t, pool, account, "duplicate_charge", struct{}{}, "pi_1")
		require.NotContains(t, open(t, pool), id)
		require.Contains(t, open(t, pool), other)
	}
	got, err := findings.Acknowledge(t.Context(), pool, other, by)
	require.NoError(t, err)
	require.True(t, got, "a finding of no account")
	require.Empty(t, open(t, pool))

	records, err := audit.Records(t.Context(), pool, account, id)
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, "discrepancy.acknowledge", records[0].Action)
	require.JSONEq(t, `{"kind": "duplicate_charge", "by": "ada", "note": "refunded by hand"}`, string(records[0].Data))
}
