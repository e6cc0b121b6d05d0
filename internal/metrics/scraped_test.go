package metrics_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

func TestScraped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	empty := scrape(t, f.metrics)
	for _, name := range []string{
		"orders_oldest_unfinished_key_age_seconds", "orders_oldest_finished_key_age_seconds",
		`orders_jobs_pending{kind="receipt"}`, `orders_jobs_pending{kind="event"}`, `orders_jobs_failed{kind="event"}`, `orders_oldest_job_age_seconds{kind="event"}`,
	} {
		require.Contains(t, empty, name)
		require.Zero(t, empty[name], name)
	}
	require.InDelta(t, 1, empty["orders_database_up"], 0)
	require.InDelta(t, retention.Seconds(), empty["orders_key_retention_seconds"], 0)

	put := func(key string, point idempotency.RecoveryPoint) uuid.UUID {
		return idempotencytest.PutKey(t, f.Pool, idempotency.Request{
			AccountID: f.Account, Key: idempotency.Key(key), Method: "POST", Path: "/v1/orders", Params: []byte("{}"),
		}, "create_order", point)
	}
	set := func(id uuid.UUID, change string, age time.Duration) {
		f.exec("UPDATE idempotency_keys SET "+change+" WHERE id = $2", age, id)
	}
	put("young-unfinished-key", "charge_created")
	set(put("older-unfinished-key", "charge_created"), "created_at = now() - $1::interval, updated_at = now() - $1::interval", 2*time.Hour)
	set(put("an-abandoned-key-001", "order_created"), "created_at = now() - $1::interval, updated_at = now() - $1::interval", 59*time.Minute)
	set(put("a-key-of-a-clock-ahead", "order_created"), "created_at = now() + $1::interval", 3*time.Hour)
	set(put("a-key-with-an-action", "charge_created"), "action_required_at = now(), updated_at = now(), created_at = now() - $1::interval", 4*time.Hour)
	set(put("an-old-finished-key1", idempotency.Finished), "finished_at = now() - $1::interval", 80*time.Hour)
	f.exec("INSERT INTO staged_jobs (id, account_id, kind, args) VALUES (gen_random_uuid(), $1, 'receipt', '{}')", f.Account)
	f.putEvents()

	found := scrape(t, f.metrics)
	for name, want := range map[string]float64{
		`orders_unfinished_keys{operation="create_order",recovery_point="charge_created"}`: 2,
		`orders_unfinished_keys{operation="create_order",recovery_point="order_created"}`:  2,
		`orders_stuck_keys{operation="create_order",recovery_point="charge_created"}`:      1,
		`orders_stuck_keys{operation="create_order",recovery_point="order_created"}`:       1,
		`orders_jobs_pending{kind="receipt"}`:                                              1,
		`orders_jobs_pending{kind="event"}`:                                                1,
		`orders_jobs_failed{kind="event"}`:                                                 1,
	} {
		require.InDelta(t, want, found[name], 0, name)
	}
	const tolerance = 60.0 // seconds, for a slow machine
	for name, want := range map[string]time.Duration{
		"orders_oldest_unfinished_key_age_seconds":    4 * time.Hour, // it requires an action
		"orders_oldest_finished_key_age_seconds":      80 * time.Hour,
		`orders_oldest_job_age_seconds{kind="event"}`: time.Hour,
	} {
		require.InDelta(t, want.Seconds(), found[name], tolerance, name)
	}
}

// putEvents inserts a pending event and a failed one.
func (f *fixture) putEvents() {
	f.exec(`
INSERT INTO staged_jobs (id, account_id, kind, args, created_at, failed_at)
VALUES (gen_random_uuid(), gen_random_uuid(), 'event', '{}', now() - interval '1 hour', NULL),
       (gen_random_uuid(), gen_random_uuid(), 'event', '{}', now() - interval '9 hours', now())`)
}

func TestScraped_databaseFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*testing.T, *fixture){
		"hangs": func(t *testing.T, f *fixture) {
			tx, err := f.Pool.Begin(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			_, err = tx.Exec(t.Context(), "LOCK TABLE idempotency_keys")
			require.NoError(t, err)
		},
		"is unavailable": func(_ *testing.T, f *fixture) { f.Pool.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			fail(t, f)
			found := scrape(t, f.metrics)
			require.Contains(t, found, "orders_database_up")
			require.Zero(t, found["orders_database_up"])
			require.NotContains(t, found, "orders_oldest_unfinished_key_age_seconds", "0 would be wrong")
			require.NotContains(t, found, `orders_jobs_pending{kind="receipt"}`)
			require.Positive(t, found["go_goroutines"])
			require.Contains(t, found, `orders_requests_total{outcome="lease_lost"}`)
			require.Contains(t, found, "orders_pool_wait_seconds_total")
		})
	}
}
