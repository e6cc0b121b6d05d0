package orders_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// Bounds of one order on connections that have prepared the statements.
const (
	maxCommits    = 3
	maxRoundTrips = 4
)

func (f *fixture) createNth(n int) idempotency.Result {
	f.t.Helper()
	result, err := f.withKey(f.t, idempotency.Key(fmt.Sprintf("an-order-of-the-cost-test-%d", n))).create(visa)
	require.Equal(f.t, "201", outcomeOf(result, err))
	return result
}

func TestCost_order(t *testing.T) {
	t.Parallel()
	meter := idempotencytest.NewMeter()
	f := newFixture(t, options{configure: meter.Configure, unchecked: true})
	f.createNth(0) // prepares the statements

	const n = 10
	meter.Reset()
	for i := range n {
		require.False(t, f.createNth(i+1).Replayed)
	}
	require.LessOrEqual(t, meter.Commits(), n*maxCommits)
	require.LessOrEqual(t, meter.RoundTrips(), n*maxRoundTrips)
	t.Logf("%d orders: %d commits, %d round trips", n, meter.Commits(), meter.RoundTrips())

	f.createNth(1) // prepares the statements of a replay
	meter.Reset()
	require.True(t, f.createNth(1).Replayed)
	require.Zero(t, meter.Commits())
	require.LessOrEqual(t, meter.RoundTrips(), 2)
}

// A HOT update adds no index entry. Two updates cannot be HOT: the one that finishes the
// key and the one that records the intent.
func TestCost_indexes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{unchecked: true}) // whose only connection does the counting
	f.createNth(0)
	f.exec("SELECT pg_stat_force_next_flush()")
	rows, err := f.pool.Query(t.Context(), `
SELECT format('%s: %s inserted, %s updated, %s HOT, %s indexes', relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, (
           SELECT count(*)
             FROM pg_index
            WHERE indrelid = relid
              AND indpred IS NULL
       ))
  FROM pg_stat_user_tables
 WHERE relname IN ('idempotency_keys', 'orders', 'audit_records', 'staged_jobs')
 ORDER BY relname`)
	require.NoError(t, err)
	require.Equal(t, []string{
		"audit_records: 3 inserted, 0 updated, 0 HOT, 2 indexes",
		"idempotency_keys: 1 inserted, 2 updated, 1 HOT, 2 indexes",
		"orders: 1 inserted, 2 updated, 1 HOT, 3 indexes",
		"staged_jobs: 1 inserted, 0 updated, 0 HOT, 1 indexes",
	}, collectStrings(t, rows), "partial indexes aside")
}

// The rows that an order reads do not grow, even if the plans date from empty tables.
func TestCost_newDatabase(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{unchecked: true})
	read := func() int {
		f.exec("SELECT pg_stat_force_next_flush()")
		return f.count(`
SELECT coalesce(sum(idx_tup_read), 0) + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables)
  FROM pg_stat_user_indexes`)
	}
	create := func(first, n int) (rowsPerOrder int) {
		before := read()
		for i := range n {
			f.createNth(first + i)
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
	meter := idempotencytest.NewMeter()
	f := newFixture(t, options{configure: meter.Configure, unchecked: true})
	for n := range 2 { // the first refund prepares the statements
		f := f.withKey(t, idempotency.Key(fmt.Sprintf("an-order-to-refund-%d", n)))
		f.do(createPaid(visa))
		meter.Reset()
		f.do(refund("201"))
	}
	require.Equal(t, 2, meter.Commits())
	require.LessOrEqual(t, meter.RoundTrips(), 7)
}
