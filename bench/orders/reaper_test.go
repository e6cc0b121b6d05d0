package orders_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

// BenchmarkReap lets the reaper delete a million finished keys while orders are
// made at a steady rate, and compares how long those take with and without it.
// One run takes some minutes: make bench-reaper.
func BenchmarkReap(b *testing.B) {
	const (
		keys  = 1_000_000
		batch = 50                    // as orders reaper takes them
		pace  = 10 * time.Millisecond // from order to order
	)
	for b.Loop() {
		m := newFixture(b, 8)
		m.fill(keys)
		m.orderSteadily(within(b, 5*time.Second), pace) // prepares the statements
		without := m.orderSteadily(within(b, time.Minute), pace)

		reaper, err := idempotency.NewReaper(m.anotherEngine(), idempotency.ReaperConfig{Retention: retention, Batch: batch})
		require.NoError(b, err)
		ctx, done := context.WithCancel(b.Context())
		start := time.Now()
		go func() {
			defer done()
			deleted, err := reaper.RunOnce(b.Context())
			if err != nil || deleted != keys {
				b.Errorf("%d keys deleted, error: %v", deleted, err)
			}
		}()
		with := m.orderSteadily(ctx, pace)

		b.ReportMetric(keys/time.Since(start).Seconds(), "keys/s")
		b.ReportMetric(milliseconds(without, 99), "p99-ms-without")
		b.ReportMetric(milliseconds(with, 99), "p99-ms-with")
		b.ReportMetric(milliseconds(with, 99)/milliseconds(without, 99), "p99-ratio")
		for name, times := range map[string][]time.Duration{"without": without, "with": with} {
			b.Logf("%s: %d orders, p50 %.1f ms, p99.9 %.1f ms", name, len(times), milliseconds(times, 50), milliseconds(times, 99.9))
		}
	}
}

func within(b *testing.B, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	b.Cleanup(cancel)
	return ctx
}

// fill inserts finished keys that are past their retention, and what they made:
// paid orders, of the size of real ones.
func (m *fixture) fill(n int) {
	m.tb.Helper()
	pool, err := pgxpool.New(m.tb.Context(), dbtest.URL(m.pool)) // without the timeouts
	require.NoError(m.tb, err)
	defer pool.Close()
	for _, step := range []struct {
		statement string
		arguments []any
	}{
		{
			`
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, params_hash,
    recovery_point, lease_token, attempt, last_run_at, created_at, finished_at, response_code, response_headers, response_body
)
SELECT gen_random_uuid(), $1, 'of-a-million-keys-' || i, 'create_order', 'POST', '/v1/orders', $3::bytea, decode(repeat('01', 33), 'hex'),
       'finished', gen_random_uuid(), 1, at, at, at, 201, '{"Content-Type":"application/json","Location":"/v1/orders/00000000-0000-8000-8000-000000000000"}', $3 || $3
  FROM generate_series(1, $2) AS i,
       LATERAL (SELECT now() - interval '80 hours' + i * interval '1 millisecond') AS t (at)`,
			[]any{m.account, n, m.request("any").Params},
		},
		{`
INSERT INTO orders (
    id, account_id, idempotency_key, email, currency, amount, items, metadata, payment_method,
    status, payment_intent_id, created_at, paid_at
)
SELECT gen_random_uuid(), account_id, idempotency_key, 'ada@example.com', 'usd', 4300, $2, '{"basket":"b-77"}', 'pm_card_visa',
       'paid', 'pi_' || id, created_at, finished_at
  FROM idempotency_keys
 WHERE account_id = $1`, []any{m.account, itemsJSON}},
		{"VACUUM ANALYZE", nil},
		{"CHECKPOINT", nil},
	} {
		_, err := pool.Exec(m.tb.Context(), step.statement, step.arguments...)
		require.NoError(m.tb, err)
	}
}

// anotherEngine is one on a pool of its own, as in a process of its own.
func (m *fixture) anotherEngine() *idempotency.Engine {
	m.tb.Helper()
	config, err := pgxpool.ParseConfig(dbtest.URL(m.pool))
	require.NoError(m.tb, err)
	postgres.Configure(config)
	pool, err := pgxpool.NewWithConfig(m.tb.Context(), config)
	require.NoError(m.tb, err)
	m.tb.Cleanup(pool.Close)
	engine, err := idempotency.New(pool, idempotency.Config{LockTimeout: lockTimeout, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(m.tb, err)
	return engine
}

// orderSteadily makes an order at every tick until ctx ends, however long those
// before take. It returns how long each took from its tick on, sorted.
func (m *fixture) orderSteadily(ctx context.Context, pace time.Duration) []time.Duration {
	m.tb.Helper()
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	var mu sync.Mutex
	var times []time.Duration
	var running sync.WaitGroup
	for ctx.Err() == nil {
		select {
		case due := <-ticker.C:
			running.Go(func() {
				if _, err := m.create("order-due-at-" + due.Format(time.RFC3339Nano)); err != nil {
					m.tb.Error(err)
				}
				took := time.Since(due)
				mu.Lock()
				defer mu.Unlock()
				times = append(times, took)
			})
		case <-ctx.Done():
		}
	}
	running.Wait()
	slices.Sort(times)
	return times
}

// milliseconds is a percentile of sorted times.
func milliseconds(sorted []time.Duration, percentile float64) float64 {
	i := min(int(float64(len(sorted))*percentile/100), len(sorted)-1)
	return float64(sorted[i]) / float64(time.Millisecond)
}
