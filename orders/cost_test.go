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

// The most that one order may cost on warm connections. The API authenticates
// before it calls this package.
const (
	maxCommits    = 3
	maxRoundTrips = 4
)

// metered is a service with nothing in the way, to be measured.
type metered struct {
	tb      testing.TB
	service *orders.Service
	engine  *idempotency.Engine
	pool    *pgxpool.Pool
	meter   *idempotencytest.Meter
	stripe  *stripetest.Server
	account uuid.UUID
}

func openMetered(tb testing.TB, conns int32) *metered {
	tb.Helper()
	meter := idempotencytest.NewMeter()
	return meteredOn(tb, meter, idempotencytest.NewPool(tb, meter.Configure, func(c *pgxpool.Config) { c.MaxConns = conns }))
}

func meteredOn(tb testing.TB, meter *idempotencytest.Meter, pool *pgxpool.Pool) *metered {
	tb.Helper()
	stripe := stripetest.New(stripetest.Options{})
	server := httptest.NewServer(stripe)
	tb.Cleanup(server.Close)
	tb.Cleanup(stripe.Close)

	const stepTimeout = 50 * time.Second // less than a lease, and more than a phase of BenchmarkWaiters
	logger := slog.New(slog.DiscardHandler)
	client, err := payments.New(payments.Config{SecretKey: "sk_test_shop", BaseURL: server.URL, Timeout: stepTimeout, Logger: logger})
	require.NoError(tb, err)
	tb.Cleanup(client.Close)
	engine, err := idempotency.New(pool, idempotency.Config{LockTimeout: lockTimeout, Clock: time.Now, Waiters: crowd, Logger: logger})
	require.NoError(tb, err)
	service, err := orders.New(orders.Config{Engine: engine, Pool: pool, Payments: client, StepTimeout: stepTimeout, Logger: logger})
	require.NoError(tb, err)
	return &metered{tb, service, engine, pool, meter, stripe, idempotencytest.Account(tb, pool)}
}

// create makes an order.
func (m *metered) create(key string) (idempotency.Result, error) {
	return m.service.Create(m.tb.Context(), request(m.tb, m.account, idempotency.Key(key), visa))
}

func TestCost(t *testing.T) {
	t.Parallel()
	m := openMetered(t, 1)
	buy := func(n int) idempotency.Result {
		result, err := m.create(fmt.Sprintf("an-order-at-its-price-%d", n))
		require.NoError(t, err)
		return result
	}
	buy(0) // the connection learns the statements

	const n = 10
	m.meter.Reset()
	for i := range n {
		require.False(t, buy(i+1).Replayed)
	}
	require.LessOrEqual(t, m.meter.Commits(), n*maxCommits)
	require.LessOrEqual(t, m.meter.RoundTrips(), n*maxRoundTrips)
	t.Logf("%d orders: %d commits, %d round trips", n, m.meter.Commits(), m.meter.RoundTrips())

	buy(1) // the first replay may meet a new statement
	m.meter.Reset()
	require.True(t, buy(1).Replayed)
	require.Zero(t, m.meter.Commits())
	require.LessOrEqual(t, m.meter.RoundTrips(), 2)
}

// What an order's rows cost the indexes. A row that is updated in place (HOT)
// makes no entry in any of them. Of the key's updates only the one that finishes
// it cannot be so, and of the order's only the one that brings the intent.
func TestCost_indexes(t *testing.T) {
	t.Parallel()
	m := openMetered(t, 1) // whose only connection does the counting
	result, err := m.create("an-order-for-the-indexes")
	require.Equal(t, "201", say(result, err))
	_, err = m.pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
	require.NoError(t, err)
	rows, err := m.pool.Query(t.Context(), `
SELECT format('%s: %s inserted, %s updated, %s of these in place, %s indexes', relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, (
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
		"audit_records: 3 inserted, 0 updated, 0 of these in place, 2 indexes",
		"idempotency_keys: 1 inserted, 2 updated, 1 of these in place, 2 indexes",
		"orders: 1 inserted, 2 updated, 1 of these in place, 3 indexes",
		"staged_jobs: 1 inserted, 0 updated, 0 of these in place, 1 indexes",
	}, texts(t, rows), "partial indexes aside")
}

// What an order reads does not grow with the orders of its account, also when
// nobody has analysed the tables yet: its plans are made while they are empty.
func TestCost_newDatabase(t *testing.T) {
	t.Parallel()
	m := openMetered(t, 1)
	read := func() (rows int) {
		_, err := m.pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
		require.NoError(t, err)
		require.NoError(t, m.pool.QueryRow(t.Context(), `
SELECT coalesce(sum(idx_tup_read), 0) + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables)
  FROM pg_stat_user_indexes`).Scan(&rows))
		return rows
	}
	buy := func(first, n int) (rowsPerOrder int) {
		before := read()
		for i := range n {
			result, err := m.create(fmt.Sprintf("an-order-of-a-new-database-%d", first+i))
			require.Equal(t, "201", say(result, err))
		}
		return (read() - before) / n
	}
	buy(0, 20) // from now on plans are kept
	require.LessOrEqual(t, buy(20, 80), 20)
}

// A refund costs three round trips more in its first transaction: what is left is
// looked at behind the lock of the order. And one to read what was decided there.
func TestCostOfARefund(t *testing.T) {
	t.Parallel()
	m := openMetered(t, 1)
	give := func(n int) {
		bought, err := m.create(fmt.Sprintf("an-order-to-give-back-%d", n))
		require.NoError(t, err)
		require.Equal(t, "201", say(bought, err))
		order := orderOf(m.account, idempotency.Key(fmt.Sprintf("an-order-to-give-back-%d", n)))
		req := refundRequest(t, m.account, order, idempotency.Key(fmt.Sprintf("a-refund-at-its-price-%d", n)), `{}`)
		m.meter.Reset()
		require.Equal(t, "201", say(m.service.Refund(t.Context(), order, req)))
	}
	give(0) // the connection learns the statements
	give(1)
	require.Equal(t, 2, m.meter.Commits())
	require.LessOrEqual(t, m.meter.RoundTrips(), 7)
}
