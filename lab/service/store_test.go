package orders_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations"
)

// maxRatio bounds the ratio of the median in the large store to that in the small one.
const maxRatio = 1.2

// BenchmarkStore compares claims, orders, replays and completer runs with ten thousand
// and ten million finished keys. The two alternate, so that other load affects both. It
// needs 25 GB of disk, 20 GB of memory, and 6 to 18 minutes.
func BenchmarkStore(b *testing.B) {
	for b.Loop() {
		server := onDisk(b)
		stores := [2]*store{openStore(b, server, "few", 10_000), openStore(b, server, "many", 10_000_000)}
		for _, s := range stores {
			s.warmUp()
		}
		compare(b, "claim", 2000, stores, func(s *store, n int) func() {
			return func() { s.claim(n) }
		})
		compare(b, "order", 2000, stores, func(s *store, n int) func() {
			return func() { s.buy(fmt.Sprintf("a-new-order-of-the-benchmark-%d", n)) }
		})
		compare(b, "replay", 2000, stores, func(s *store, n int) func() {
			return func() { s.buy(filledKey(s.shuffled[n])) }
		})
		compare(b, "completer-idle", 2000, stores, func(s *store, _ int) func() {
			return func() { s.complete(0) }
		})
		compare(b, "completer-busy", 100, stores, func(s *store, n int) func() {
			s.abandon(5, createEndpoint, fmt.Sprintf("abandoned-before-create-%d", n))
			s.abandon(5, confirmEndpoint, fmt.Sprintf("abandoned-before-confirm-%d", n))
			return func() { s.complete(10) }
		})
	}
}

// compare measures n runs in each store, in alternation. The time of prepare is not
// measured.
func compare(b *testing.B, name string, n int, stores [2]*store, prepare func(s *store, n int) func()) {
	b.Helper()
	var times [2][]time.Duration
	for i := range n {
		for which, s := range stores {
			run := prepare(s, i)
			start := time.Now()
			run()
			times[which] = append(times[which], time.Since(start))
		}
	}
	for _, list := range times {
		slices.Sort(list)
	}
	ratio := milliseconds(times[1], 50) / milliseconds(times[0], 50)
	report("%-14s  few: p50 %6.3f ms, p90 %6.3f ms  many: p50 %6.3f ms, p90 %6.3f ms  ratio of the medians %.2f", name,
		milliseconds(times[0], 50), milliseconds(times[0], 90), milliseconds(times[1], 50), milliseconds(times[1], 90), ratio)
	b.ReportMetric(ratio, name+"-ratio")
	if ratio > maxRatio {
		b.Errorf("%s takes %.2f times as long with many keys, more than %.1f", name, ratio, maxRatio)
	}
}

// onDisk starts a server with its data on disk. Commits do not wait for the disk, because
// that wait does not depend on the size of the store.
func onDisk(b *testing.B) *embeddedpg.Server {
	b.Helper()
	cache, err := embeddedpg.CacheDir()
	require.NoError(b, err)
	dir := filepath.Join(cache, "bench-store")
	require.NoError(b, os.RemoveAll(dir)) // from an interrupted run
	b.Cleanup(func() { require.NoError(b, os.RemoveAll(dir)) })
	server, err := embeddedpg.Start(b.Context(), embeddedpg.Options{
		DataDir: dir,
		Settings: map[string]string{
			"shared_buffers":     "6GB",
			"synchronous_commit": "off",
			"checkpoint_timeout": "1h", // no checkpoint during the measurement
			"max_wal_size":       "4GB",
			"autovacuum":         "off",
			"wal_level":          "minimal",
			"max_wal_senders":    "0",
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, server.Stop()) })
	return server
}

type store struct {
	*fixture
	completer *idempotency.Completer
	keys      int // number of finished keys, not past their retention
	shuffled  []int
}

func openStore(b *testing.B, server *embeddedpg.Server, name string, keys int) *store {
	b.Helper()
	admin, err := pgx.Connect(b.Context(), server.URL("postgres"))
	require.NoError(b, err)
	_, err = admin.Exec(b.Context(), "CREATE DATABASE "+name)
	require.NoError(b, err)
	require.NoError(b, admin.Close(b.Context()))

	wire := &idempotencytest.Wire{}
	config, err := pgxpool.ParseConfig(server.URL(name))
	require.NoError(b, err)
	config.MaxConns = 8
	postgres.Configure(config)
	wire.Configure(config)
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	migrator, err := migrations.New(pool, slog.New(slog.DiscardHandler))
	require.NoError(b, err)
	_, err = migrator.Up(b.Context())
	require.NoError(b, err)
	require.NoError(b, migrator.Close())

	s := &store{fixture: newFixtureOn(b, wire, pool), keys: keys, shuffled: rand.Perm(keys)}
	s.completer = idempotency.NewCompleter(s.Engine, s.Operations.Operations(),
		idempotency.CompleterConfig{Grace: grace, MaxAttempts: 10, ActionTimeout: 24 * time.Hour, Limit: 1000, Concurrency: 1})
	s.fillTables(server.URL(name))
	return s
}

// filledKey returns a key with the length of a UUID.
func filledKey(i int) string { return fmt.Sprintf("old-order-of-the-benchmark-%09d", i) }

// fillTables inserts copies of a real key and its order, spread over the last three days.
func (s *store) fillTables(url string) {
	s.tb.Helper()
	const model, chunk = "a-model-for-many-old-orders-00000000", 500_000
	s.buy(model)
	conn, err := pgx.Connect(s.tb.Context(), url) // without the timeouts
	require.NoError(s.tb, err)
	defer conn.Close(s.tb.Context())
	start := time.Now()
	run := func(statement string, arguments ...any) {
		s.tb.Helper()
		_, err := conn.Exec(s.tb.Context(), statement, append([]any{pgx.QueryExecModeExec}, arguments...)...)
		require.NoError(s.tb, err)
	}
	// Checks of foreign keys would take as long as everything else.
	run("SET session_replication_role = replica")
	run("CREATE TEMPORARY TABLE model_key AS SELECT * FROM idempotency_keys")
	run("CREATE TEMPORARY TABLE model_order AS SELECT * FROM orders")
	run("BEGIN")
	run("TRUNCATE idempotency_keys, orders, refunds") // PostgreSQL then writes the rows without WAL
	rebuild := s.dropIndexes(conn)
	for from := 0; from < s.keys; from += chunk {
		to := min(from+chunk, s.keys)
		run(fillKeysSQL, from, to-1, s.keys)
		run(fillOrdersSQL, from, to-1, s.keys)
		report("%d of %d keys and orders, after %s", to, s.keys, time.Since(start).Round(time.Second))
	}
	run("SET LOCAL maintenance_work_mem = '1GB'")
	for _, statement := range rebuild {
		run(statement)
	}
	report("Indexes, after %s", time.Since(start).Round(time.Second))
	run("COMMIT")
	run("VACUUM ANALYZE")
	run("CHECKPOINT")
	// On a server that has run for a while, shared_buffers contains the indexes and the
	// OS cache contains the keys.
	run("CREATE EXTENSION pg_prewarm")
	run("SELECT pg_prewarm(indexrelid) FROM pg_index WHERE indrelid IN ('idempotency_keys'::regclass, 'orders'::regclass)")
	run("SELECT pg_prewarm('idempotency_keys', 'read')")
	var size string
	require.NoError(s.tb, conn.QueryRow(s.tb.Context(), "SELECT pg_size_pretty(pg_database_size(current_database()))").Scan(&size))
	report("Size: %s, after %s", size, time.Since(start).Round(time.Second))
}

// dropIndexes drops the indexes and constraints. It returns the statements that create
// them again.
func (s *store) dropIndexes(conn *pgx.Conn) []string {
	s.tb.Helper()
	rows, err := conn.Query(s.tb.Context(), `
SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname),
       format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
           || CASE contype WHEN 'f' THEN ' NOT VALID' ELSE '' END,
       contype <> 'f' AS has_index
  FROM pg_constraint
 WHERE contype IN ('f', 'p', 'u')
   AND (confrelid IN ('idempotency_keys'::regclass, 'orders'::regclass)
        OR confrelid = 0 AND conrelid IN ('idempotency_keys'::regclass, 'orders'::regclass))
 UNION ALL
SELECT format('DROP INDEX %s', indexrelid::regclass),
       pg_get_indexdef(indexrelid),
       true
  FROM pg_index
 WHERE indrelid IN ('idempotency_keys'::regclass, 'orders'::regclass)
   AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u'))
 ORDER BY has_index`)
	require.NoError(s.tb, err)
	var drop, rebuild []string
	var one, other string
	_, err = pgx.ForEachRow(rows, []any{&one, &other, nil}, func() error {
		drop, rebuild = append(drop, one), append(rebuild, other)
		return nil
	})
	require.NoError(s.tb, err)
	for _, statement := range drop {
		_, err := conn.Exec(s.tb.Context(), statement)
		require.NoError(s.tb, err)
	}
	slices.Reverse(rebuild)
	return rebuild
}

func report(format string, arguments ...any) { fmt.Fprintf(os.Stderr, format+"\n", arguments...) }

// The rows of orders number $1 to $2 of $3.
const (
	fillKeysSQL = `
INSERT INTO idempotency_keys (id, account_id, idempotency_key, operation, request_method, request_path, request_params, params_hash,
    recovery_point, lease_token, attempt, last_run_at, created_at, finished_at, response_code, response_headers, response_body)
SELECT ` + derived + `, account_id, filled, operation, request_method, request_path, request_params, params_hash,
       recovery_point, gen_random_uuid(), attempt, at, at, at, response_code, response_headers, response_body
  FROM model_key,` + filledRows + `
       LATERAL (SELECT sha256('idempotency_key\000' || uuid_send(account_id) || filled::bytea) OFFSET 0) AS h (hash)`

	fillOrdersSQL = `
INSERT INTO orders (id, account_id, idempotency_key, email, currency, amount, items, metadata, payment_method,
    status, payment_intent_id, created_at, paid_at)
SELECT ` + derived + `, account_id, filled, email, currency, amount, items, metadata, payment_method,
       status, 'pi_' || substr(md5(filled), 1, 24), at, at
  FROM model_order,` + filledRows + `
       LATERAL (SELECT sha256('order\000' || uuid_send(account_id) || filled::bytea) OFFSET 0) AS h (hash)`

	filledRows = `
       generate_series($1::integer, $2::integer) AS i,
       LATERAL (SELECT 'old-order-of-the-benchmark-' || to_char(i, 'FM000000000'),
                       now() - interval '71 hours' * (1 - i::double precision / $3)) AS f (filled, at),`

	// derived is DeriveID of a hash: it sets the version (8) and the variant.
	derived = `encode(set_byte(set_byte(substr(hash, 1, 16), 6, get_byte(hash, 6) & 15 | 128), 8, get_byte(hash, 8) & 63 | 128), 'hex')::uuid`
)

func (s *store) warmUp() {
	for i := range 100 {
		s.buy(fmt.Sprintf("a-warm-up-order-%d", i))
		s.buy(filledKey(i))
		s.complete(0)
	}
}

// buy creates or replays an order.
func (s *store) buy(key string) {
	result, err := s.create(key)
	require.NoError(s.tb, err)
	require.Equal(s.tb, http.StatusCreated, result.Response.Status)
}

func (s *store) claim(n int) {
	result, err := s.Engine.Do(s.tb.Context(), s.request(fmt.Sprintf("a-key-that-is-claimed-%d", n)), nothing{})
	require.NoError(s.tb, err)
	require.False(s.tb, result.Replayed)
}

type nothing struct{}

func (nothing) Name() string { return "nothing" }

func (nothing) Steps(*idempotency.Run) idempotency.Steps {
	return idempotency.Steps{Start: func(context.Context, *idempotency.Tx) (idempotency.Transition, error) {
		return idempotency.Finish(idempotency.Response{Status: 200, Body: []byte("{}")}), nil
	}}
}

func (s *store) complete(n int) {
	result, err := s.completer.RunOnce(s.tb.Context())
	require.NoError(s.tb, err)
	require.Equal(s.tb, idempotency.CompleterResult{Completed: n}, result)
}
