package orders_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

func (f *fixture) mustCreate(n int) (order uuid.UUID) {
	f.tb.Helper()
	key := fmt.Sprintf("an-order-of-the-cost-test-%d", n)
	result, err := f.create(key)
	require.NoError(f.tb, err)
	require.Equal(f.tb, 201, result.Response.Status)
	return idempotency.DeriveID("order", f.Account, idempotency.Key(key))
}

func (f *fixture) flushStatistics() {
	_, err := f.Pool.Exec(f.tb.Context(), "SELECT pg_stat_force_next_flush()")
	require.NoError(f.tb, err)
}

// A HOT update adds no index entry. Two updates cannot be HOT: the one that finishes the
// key and the one that records the intent.
func TestCost_indexes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	f.mustCreate(0)
	f.flushStatistics()
	rows, _ := f.Pool.Query(t.Context(), `
SELECT format('%s: %s inserted, %s updated, %s HOT, %s indexes', relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, (
           SELECT count(*)
             FROM pg_index
            WHERE indrelid = relid
              AND indpred IS NULL
       ))
  FROM pg_stat_user_tables
 WHERE relname IN ('idempotency_keys', 'orders', 'audit_records', 'staged_jobs')
 ORDER BY relname`)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{
		"audit_records: 3 inserted, 0 updated, 0 HOT, 2 indexes",
		"idempotency_keys: 1 inserted, 2 updated, 1 HOT, 2 indexes",
		"orders: 1 inserted, 2 updated, 1 HOT, 2 indexes",
		"staged_jobs: 1 inserted, 0 updated, 0 HOT, 1 indexes",
	}, found, "partial indexes aside")
}

// The rows that an order reads do not grow, even if the plans date from empty tables.
func TestCost_newDatabase(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	read := func() (rows int) {
		f.flushStatistics()
		require.NoError(t, f.Pool.QueryRow(t.Context(), `
SELECT coalesce(sum(idx_tup_read), 0) + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables)
  FROM pg_stat_user_indexes`).Scan(&rows))
		return rows
	}
	create := func(first, n int) (rowsPerOrder int) {
		before := read()
		for i := range n {
			f.mustCreate(first + i)
		}
		return (read() - before) / n
	}
	create(0, 10) // from now on the plans are generic
	require.LessOrEqual(t, create(10, 40), 20)
}

// The first transaction of a refund needs three more round trips: it locks the order and
// then reads the remaining amount.
func TestCost_refund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	for n := range 2 { // the first refund prepares the statements
		order := f.mustCreate(n)
		f.wire.Reset()
		require.NoError(t, f.refund(order, fmt.Sprintf("a-refund-of-the-cost-test-%d", n)))
	}
	require.Equal(t, 2, f.wire.Commits())
	require.LessOrEqual(t, f.wire.RoundTrips(), 7)
}

func (f *fixture) refund(order uuid.UUID, key string) error {
	req := f.request(key)
	req.Path, req.Params = "/v1/orders/"+order.String()+"/refunds", []byte(`{"amount":100}`)
	_, err := f.Refund(f.tb.Context(), req)
	return err
}
