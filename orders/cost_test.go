package orders_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// Bounds of one order on connections that have prepared the statements.
const (
	maxCommits    = 3
	maxRoundTrips = 4
)

const createEndpoint, confirmEndpoint = createIntent, confirm

// costFixture counts round trips and commits.
type costFixture struct {
	tb      testing.TB
	service *orders.Service
	engine  *idempotency.Engine
	pool    *pgxpool.Pool
	meter   *idempotencytest.Meter
	stripe  *stripetest.Server
	account uuid.UUID
}

func newCostFixture(tb testing.TB, conns int32) *costFixture {
	tb.Helper()
	meter := idempotencytest.NewMeter()
	return newCostFixtureOn(tb, meter, idempotencytest.NewPool(tb, meter.Configure, func(c *pgxpool.Config) { c.MaxConns = conns }))
}

func newCostFixtureOn(tb testing.TB, meter *idempotencytest.Meter, pool *pgxpool.Pool) *costFixture {
	tb.Helper()
	stripe := stripetest.New(stripetest.Options{})
	server := httptest.NewServer(stripe)
	tb.Cleanup(server.Close)
	tb.Cleanup(stripe.Close)

	const stepTimeout = 50 * time.Second // less than a lease
	logger := slog.New(slog.DiscardHandler)
	client, err := payments.New(payments.Config{SecretKey: "sk_test_orders", BaseURL: server.URL, Timeout: stepTimeout, Logger: logger})
	require.NoError(tb, err)
	tb.Cleanup(client.Close)
	engine, err := idempotency.New(pool, idempotency.Config{LockTimeout: lockTimeout, Clock: time.Now, Logger: logger})
	require.NoError(tb, err)
	service, err := orders.New(orders.Config{Engine: engine, Pool: pool, Payments: client, StepTimeout: stepTimeout, ChargeWindow: 24 * time.Hour, Logger: logger})
	require.NoError(tb, err)
	return &costFixture{tb, service, engine, pool, meter, stripe, idempotencytest.Account(tb, pool)}
}

func (m *costFixture) create(key string) (idempotency.Result, error) {
	return m.service.Create(m.tb.Context(), request(m.tb, m.account, idempotency.Key(key), visa))
}

func TestCost_order(t *testing.T) {
	t.Parallel()
	m := newCostFixture(t, 1)
	create := func(n int) idempotency.Result {
		result, err := m.create(fmt.Sprintf("an-order-of-the-cost-test-%d", n))
		require.NoError(t, err)
		return result
	}
	create(0) // prepares the statements

	const n = 10
	m.meter.Reset()
	for i := range n {
		require.False(t, create(i+1).Replayed)
	}
	require.LessOrEqual(t, m.meter.Commits(), n*maxCommits)
	require.LessOrEqual(t, m.meter.RoundTrips(), n*maxRoundTrips)
	t.Logf("%d orders: %d commits, %d round trips", n, m.meter.Commits(), m.meter.RoundTrips())

	create(1) // prepares the statements of a replay
	m.meter.Reset()
	require.True(t, create(1).Replayed)
	require.Zero(t, m.meter.Commits())
	require.LessOrEqual(t, m.meter.RoundTrips(), 2)
}

// A HOT update adds no index entry. Two updates cannot be HOT: the one that finishes the
// key and the one that records the intent.
func TestCost_indexes(t *testing.T) {
	t.Parallel()
	m := newCostFixture(t, 1) // whose only connection does the counting
	result, err := m.create("an-order-for-the-indexes")
	require.Equal(t, "201", outcomeOf(result, err))
	_, err = m.pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
	require.NoError(t, err)
	rows, err := m.pool.Query(t.Context(), `
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

// The rows that an order reads do not grow with the account, even if the plans date from
// empty tables.
func TestCost_newDatabase(t *testing.T) {
	t.Parallel()
	m := newCostFixture(t, 1)
	read := func() (rows int) {
		_, err := m.pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
		require.NoError(t, err)
		require.NoError(t, m.pool.QueryRow(t.Context(), `
SELECT coalesce(sum(idx_tup_read), 0) + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables)
  FROM pg_stat_user_indexes`).Scan(&rows))
		return rows
	}
	create := func(first, n int) (rowsPerOrder int) {
		before := read()
		for i := range n {
			result, err := m.create(fmt.Sprintf("an-order-of-a-new-database-%d", first+i))
			require.Equal(t, "201", outcomeOf(result, err))
		}
		return (read() - before) / n
	}
	create(0, 20) // from now on the plans are generic
	require.LessOrEqual(t, create(20, 80), 20)
}

// The first transaction of a refund needs three more round trips: it locks the order and
// then reads the remaining amount.
func TestCost_refund(t *testing.T) {
	t.Parallel()
	m := newCostFixture(t, 1)
	refund := func(n int) {
		created, err := m.create(fmt.Sprintf("an-order-to-refund-back-%d", n))
		require.NoError(t, err)
		require.Equal(t, "201", outcomeOf(created, err))
		order := orderID(m.account, idempotency.Key(fmt.Sprintf("an-order-to-refund-back-%d", n)))
		req := refundRequest(t, m.account, order, idempotency.Key(fmt.Sprintf("a-refund-of-the-cost-test-%d", n)), `{}`)
		m.meter.Reset()
		require.Equal(t, "201", outcomeOf(m.service.Refund(t.Context(), order, req)))
	}
	refund(0) // prepares the statements
	refund(1)
	require.Equal(t, 2, m.meter.Commits())
	require.LessOrEqual(t, m.meter.RoundTrips(), 7)
}
