package metrics_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/metrics"
)

// What is left to do is the database's to say, whoever left it.
func TestBacklog(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	empty := scrape(t, s.metrics)
	for _, name := range []string{
		"orders_needs_review_keys", "orders_oldest_needs_review_age_seconds", "orders_oldest_finished_key_age_seconds", "orders_completer_lag_seconds",
		"orders_receipts_waiting", "orders_oldest_receipt_age_seconds", "orders_receipts_dead",
	} {
		require.Contains(t, empty, name)
		require.Zero(t, empty[name], name)
	}
	require.InDelta(t, 1, empty["orders_database_up"], 0)
	require.InDelta(t, retention.Seconds(), empty["orders_key_retention_seconds"], 0)
	require.InDelta(t, grace.Seconds(), empty["orders_completer_grace_seconds"], 0)

	put := func(key string, point idempotency.RecoveryPoint) uuid.UUID {
		return idempotencytest.PutKey(t, s.pool, idempotency.Request{
			AccountID: s.account, Key: idempotency.Key(key), Method: "POST", Path: "/v1/orders", Params: []byte("{}"),
		}, "create_order", idempotencytest.State{Point: point})
	}
	back := func(id uuid.UUID, change string, age time.Duration) {
		s.exec("UPDATE idempotency_keys SET "+change+" WHERE id = $2", age, id)
	}
	put("young-unfinished-key", "charge_created")
	back(put("older-unfinished-key", "charge_created"), "created_at = now() - $1::interval, last_run_at = now() - $1::interval, completer_attempt = 3", 2*time.Hour)
	back(put("an-abandoned-key-001", "order_created"), "created_at = now() - $1::interval, last_run_at = now() - $1::interval", time.Hour)
	back(put("a-key-that-is-stuck1", "order_created"), "needs_review_at = now() - $1::interval, created_at = now() - interval '9 days'", 3*time.Hour)
	back(put("a-key-long-finished1", idempotency.Finished), "finished_at = now() - $1::interval", 80*time.Hour)
	s.exec(`
INSERT INTO staged_jobs (id, account_id, kind, args, created_at, failed_at)
VALUES (gen_random_uuid(), $1, 'receipt', '{}', now(), NULL),
       (gen_random_uuid(), $1, 'receipt', '{}', now() - interval '30 minutes', NULL),
       (gen_random_uuid(), $1, 'receipt', '{}', now() - interval '9 days', now())`, s.account)

	fresh, err := metrics.New(metrics.Config{Pool: s.pool, Logger: discard, Clock: time.Now}) // which has read nothing yet
	require.NoError(t, err)
	found := scrape(t, fresh)
	const little = 60.0 // s, for a machine that is busy
	for name, want := range map[string]float64{
		`orders_unfinished_keys{operation="create_order",recovery_point="charge_created"}`: 2,
		`orders_unfinished_keys{operation="create_order",recovery_point="order_created"}`:  1,
		"orders_needs_review_keys": 1,
		"orders_receipts_waiting":  2,
		"orders_receipts_dead":     1,
	} {
		require.InDelta(t, want, found[name], 0, name)
	}
	for name, want := range map[string]time.Duration{
		`orders_oldest_unfinished_key_age_seconds{operation="create_order",recovery_point="charge_created"}`: 2 * time.Hour,
		`orders_oldest_unfinished_key_age_seconds{operation="create_order",recovery_point="order_created"}`:  time.Hour,
		"orders_completer_lag_seconds":           time.Hour, // that of the other one has been tried
		"orders_oldest_needs_review_age_seconds": 3 * time.Hour,
		"orders_oldest_finished_key_age_seconds": 80 * time.Hour,
		"orders_oldest_receipt_age_seconds":      30 * time.Minute,
	} {
		require.InDelta(t, want.Seconds(), found[name], little, name)
	}
	require.NotContains(t, found, "orders_key_retention_seconds", "nobody said")
	require.NotContains(t, found, `orders_gate_places{gate="runs"}`, "it has none")
}

// A database that does not answer costs a scrape some seconds, and no more of it
// than what is read there.
func TestBacklog_databaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck // it wrote nothing
	_, err = tx.Exec(t.Context(), "LOCK TABLE idempotency_keys")
	require.NoError(t, err)

	requireBlind(t, scrape(t, s.metrics))
}

func TestBacklog_databaseAway(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.pool.Close()
	requireBlind(t, scrape(t, s.metrics))
}

func requireBlind(t *testing.T, found samples) {
	t.Helper()
	require.Contains(t, found, "orders_database_up")
	require.Zero(t, found["orders_database_up"])
	require.NotContains(t, found, "orders_needs_review_keys", "0 would be a lie")
	require.NotContains(t, found, "orders_receipts_waiting")
	require.Positive(t, found["go_goroutines"])
	require.Contains(t, found, `orders_requests_total{outcome="created"}`)
	require.Contains(t, found, "orders_pool_max_connections")
}

// However many ask, the database is asked every few seconds, in good times and in
// bad ones.
func TestBacklog_isReadNowAndThen(t *testing.T) {
	t.Parallel()
	now := time.Now()
	pool := idempotencytest.NewPool(t)
	m, err := metrics.New(metrics.Config{Pool: pool, Logger: discard, Clock: func() time.Time { return now }})
	require.NoError(t, err)
	scrape(t, m)
	reading := pool.Stat().AcquireCount()
	scrape(t, m)
	now = now.Add(4 * time.Second)
	scrape(t, m)
	require.Equal(t, reading, pool.Stat().AcquireCount())
	now = now.Add(2 * time.Second)
	require.InDelta(t, 1, scrape(t, m)["orders_database_up"], 0)
	require.Greater(t, pool.Stat().AcquireCount(), reading)

	pool.Close()
	require.InDelta(t, 1, scrape(t, m)["orders_database_up"], 0, "a moment ago it could be read")
	now = now.Add(6 * time.Second)
	require.Zero(t, scrape(t, m)["orders_database_up"])
}

func TestNew_needsAPoolAndALogger(t *testing.T) {
	t.Parallel()
	_, err := metrics.New(metrics.Config{})
	require.ErrorContains(t, err, "metrics: a pool, a logger and a clock are needed")
}
