//go:build citus

package citus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/payments/stripetest"
)

const clients = 16

var uuidPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

// A populated database is distributed, twice, and replays the same bytes as before.
func TestDistribute_populated(t *testing.T) {
	f := startCluster(t).emptyFixture("shop")
	f.CreateAccount()
	api := f.Serve(f.Environ)
	first, err := api.Order(t.Context(), "populated-order-1")
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, first.Status, first.Body)
	api.Stop()

	require.Contains(t, labtest.Run(t, f.Environ, "migrate", "citus"), "distributed: 10 ")
	require.Equal(t, 1, f.Count("SELECT count(*) FROM pg_constraint WHERE conname = 'refunds_account_id_order_id_fkey'"), "dropped and created again")
	require.Contains(t, labtest.Run(t, f.Environ, "migrate", "citus"), "distributed: 0 ")

	api = f.Serve(f.Environ)
	replay, err := api.Order(t.Context(), "populated-order-1")
	require.NoError(t, err)
	require.Equal(t, first.Body, replay.Body)
	require.Equal(t, "true", replay.Header.Get("Idempotent-Replayed"))
	requireConsistent(t, f, 1)
}

// The statements of a request reach one shard. Background commands read all shards.
func TestRequests_oneShard(t *testing.T) {
	c := startCluster(t)
	f := c.fixture("shop")
	f.Exec("ALTER DATABASE shop SET citus.enable_stat_counters = on")
	f.Pool.Reset()
	api := f.Serve(f.Environ, "--shutdown-delay", "0")
	multi := func() int {
		return f.Count("SELECT coalesce(sum(query_execution_multi_shard), 0) FROM citus_stat_counters WHERE name = 'shop'")
	}
	single := func() int {
		return f.Count("SELECT coalesce(sum(query_execution_single_shard), 0) FROM citus_stat_counters WHERE name = 'shop'")
	}
	multiBefore, singleBefore := multi(), single()
	order, err := api.Order(t.Context(), "one-shard-order-01")
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, order.Status, order.Body)
	location := order.Header.Get("Location")
	header := http.Header{"Idempotency-Key": {"one-shard-refund-1"}}
	for _, request := range []struct{ method, path, body string }{
		{http.MethodPost, location + "/refunds", `{"amount":500}`},
		{http.MethodPost, "/v1/orders", strings.Replace(programtest.Tea, "pm_card_visa", "pm_card_chargeDeclined", 1)},
		{http.MethodGet, location, ""},
		{http.MethodGet, location + "/refunds", ""},
		{http.MethodGet, "/v1/orders?limit=2", ""},
		{http.MethodGet, "/v1/idempotency-keys/one-shard-order-01", ""},
	} {
		if request.path == "/v1/orders" {
			header = http.Header{"Idempotency-Key": {"one-shard-decline1"}}
		}
		response, err := api.Do(t.Context(), request.method, request.path, request.body, header)
		require.NoError(t, err)
		require.Less(t, response.Status, 500, response.Body)
		require.NotEqual(t, http.StatusNotFound, response.Status, request.path)
	}
	require.Equal(t, multiBefore, multi(), "no statement of a request reaches several shards")
	require.Greater(t, single(), singleBefore+10, "the counters count")
	api.Stop()
	labtest.Run(t, f.Environ, "completer")
	require.Greater(t, multi(), multiBefore, "the completer's query reads all shards")
}

// While orders are created, shards move to the other worker. At worst, a client gets 503
// and retries.
func TestRebalance_whileOrdering(t *testing.T) {
	c := startCluster(t)
	f := c.fixture("shop")
	api := f.Serve(f.Environ)
	orders := 0
	operator, err := pgxpool.New(t.Context(), c.coordinator.adminURL("shop"))
	require.NoError(t, err)
	defer operator.Close()
	var moved atomic.Int32
	group, ctx := errgroup.WithContext(t.Context())
	done := make(chan struct{})
	group.Go(func() error {
		defer close(done)
		for moved.Load() < 2 {
			if _, err := place(ctx, api, fmt.Sprintf("rebalance-%d", orders), 400, clients); err != nil {
				return err
			}
			orders += 400
		}
		return nil
	})
	group.Go(func() error {
		for turn := 0; ; turn++ {
			from, to := c.workers[turn%2], c.workers[(turn+1)%2]
			// The shard of the fixture's account, so that each move affects the orders.
			_, err := operator.Exec(ctx, fmt.Sprintf(`
SELECT citus_move_shard_placement(get_shard_id_for_distribution_column('orders', id), '127.0.0.1', %d, '127.0.0.1', %d, 'force_logical')
  FROM accounts
 WHERE EXISTS (
     SELECT FROM citus_shards
      WHERE shardid = get_shard_id_for_distribution_column('orders', accounts.id)
        AND nodeport = %d
 )`, from.port, to.port, from.port))
			if err != nil {
				return err
			}
			moved.Add(1)
			select {
			case <-done:
				return nil
			default:
			}
		}
	})
	require.NoError(t, group.Wait())
	t.Logf("%d orders during %d moves of their shards", orders, moved.Load())
	requireConsistent(t, f, orders)
}

// Each of 5,000 orders is charged once and gets one receipt and one response, although a
// worker is killed three times.
func TestSoak_workerKilled(t *testing.T) {
	const orders = 5000
	c := startCluster(t)
	f := c.fixture("shop")
	api := f.Serve(f.Environ)
	worker := labtest.Start(t, f.With("SMTP_URL=smtp://"+programtest.NewMailServer(t, "").Address, "RECEIPTS_FROM=shop@example.com"), "worker")
	completer := labtest.Start(t, f.Environ, "completer", "--every", "2s")
	group, ctx := errgroup.WithContext(t.Context())
	var placed atomic.Bool
	group.Go(func() error {
		defer placed.Store(true)
		took, err := place(ctx, api, "killed", orders, clients)
		t.Logf("%d orders with three kills of a worker: %s", orders, took.Round(time.Millisecond))
		return err
	})
	for n := range 3 {
		before := len(f.Stripe.Charges())
		programtest.Eventually(t, func() bool { return placed.Load() || len(f.Stripe.Charges()) >= before+600 })
		require.False(t, placed.Load(), "the orders were finished before kill %d", n+1)
		victim := c.workers[n%2]
		victim.kill()
		victim.start()
	}
	require.NoError(t, group.Wait())
	programtest.Eventually(t, func() bool { return f.Count("SELECT count(*) FROM staged_jobs") == 0 })
	worker.Stop()
	completer.Stop()
	requireConsistent(t, f, orders)
}

// The same load, in turns on a plain database of the coordinator's server and on the
// cluster. The test reports the ratio.
func TestThroughput(t *testing.T) {
	const orders = 500
	c := startCluster(t)
	c.coordinator.exec("postgres", "CREATE DATABASE plain")
	plain := c.migrated("plain")
	plain.CreateAccount()
	fixtures := []*labtest.Fixture{plain, c.fixture("shop")}
	apis := []*programtest.API{fixtures[0].Serve(fixtures[0].Environ), fixtures[1].Serve(fixtures[1].Environ)}
	var ratios []float64
	for round := range 4 {
		var took [2]time.Duration
		for i, api := range apis {
			var err error
			took[i], err = place(t.Context(), api, fmt.Sprintf("round-%d", round), orders, clients)
			require.NoError(t, err)
		}
		if round == 0 {
			continue // caches are empty
		}
		ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
		t.Logf("%d orders, %d clients: plain %.0f orders/s, Citus %.0f orders/s, ratio %.2f", orders, clients,
			orders/took[0].Seconds(), orders/took[1].Seconds(), ratios[len(ratios)-1])
	}
	slices.Sort(ratios)
	t.Logf("median ratio %.2f", ratios[1])
	for _, f := range fixtures {
		requireConsistent(t, f, 4*orders)
	}
}

// Every command runs on distributed tables. The soak runs the worker and the completer.
func TestCommands(t *testing.T) {
	c := startCluster(t)
	f := c.fixture("shop")
	require.Contains(t, labtest.Run(t, f.Environ, "migrate", "citus"), "distributed: 0 ")
	require.Equal(t, 2, f.Count(`SELECT count(*) FROM run_command_on_workers('SHOW lock_timeout') WHERE result = '2s'`), "sessions on workers")

	api := f.Serve(f.Environ, "--shutdown-delay", "0")
	rejecting := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: "POST /v1/payment_intents/{id}/confirm", Times: stripetest.Always})
	for _, key := range []string{"to-be-completed-1", "to-be-retried-001", "to-be-resolved-01"} {
		order, err := api.Order(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, order.Status, order.Body)
	}
	rejecting.Release()
	require.Contains(t, labtest.Run(t, f.Environ, "keys", "show", "to-be-retried-001"), "charge_created")
	labtest.Run(t, f.Environ, "keys", "retry", "to-be-retried-001", "--reason", "a test")
	labtest.Run(t, f.Environ, "keys", "resolve", "to-be-resolved-01", "--reason", "a test")
	f.Exec("UPDATE idempotency_keys SET last_run_at = now() - interval '10 minutes' WHERE finished_at IS NULL")
	require.Contains(t, labtest.Run(t, f.Environ, "keys", "list"), "charge_created")
	labtest.Run(t, f.Environ, "completer")
	require.Len(t, f.Stripe.Charges(), 2)
	require.Contains(t, labtest.Run(t, f.Environ, "reconcile"), "Discrepancies: 0")

	f.Exec("UPDATE idempotency_keys SET finished_at = now() - interval '73 hours'")
	labtest.Run(t, f.Environ, "reaper")
	require.Equal(t, 3, f.Count("SELECT count(*) FROM idempotency_keys WHERE expired_at IS NOT NULL"))
	expired, err := api.Order(t.Context(), "to-be-completed-1")
	require.NoError(t, err)
	require.Equal(t, http.StatusUnprocessableEntity, expired.Status, expired.Body)
	require.Len(t, f.Stripe.Charges(), 2)

	var account string
	require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT id::text FROM accounts").Scan(&account))
	created := labtest.Run(t, f.Environ, "accounts", "keys", "create", "--account", account)
	id := uuidPattern.FindString(created)
	require.Contains(t, labtest.Run(t, f.Environ, "accounts", "keys", "revoke", "--account", account, id), "was revoked")
	require.Contains(t, labtest.Run(t, f.Environ, "accounts", "keys", "list", "--account", account), id)

	api.Stop()
}

// The tests of the core packages on distributed tables. The crash matrix observes rows by
// triggers, which a distributed table cannot have.
func TestModule(t *testing.T) {
	c := startCluster(t)
	names := slices.Sorted(maps.Keys(notOnCitus))
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(root, "migrations", "dbtest", "one_server.go"): filepath.Join(root, "lab", "citus", "testdata", "dbtest_citus.go"),
	}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))
	tests := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-overlay", file, "-p", "1", "-parallel", "4", "-timeout", "20m",
		"-skip", "^("+strings.Join(names, "|")+")$",
		"./idempotency", "./orders", "./orders/reconcile", "./receipts", "./api")
	tests.Dir = root
	tests.Env = append(os.Environ(), "DATABASE_URL="+c.coordinator.url("postgres"), "DBTEST_CITUS_WORKERS="+c.workerURLs())
	output, err := tests.CombinedOutput()
	t.Logf("%s", output)
	require.NoError(t, err)
}

// notOnCitus has the tests that need a plain server, and why.
var notOnCitus = map[string]string{
	"TestCancel_innerErrors":               "it updates a row with a volatile function",
	"TestCancel_randomRaces":               "it updates a row with a volatile function",
	"TestCompleter_rowLocked":              "it locks rows of all accounts",
	"TestCost_indexes":                     "the coordinator has no statistics of the tables",
	"TestDatabase_rowLocked":               "it locks rows of all accounts",
	"TestDatabase_timeouts":                "the distribution of its table takes longer than its statement_timeout",
	"TestEvents_staged":                    "its check joins records by what is not their account",
	"TestEvents_stagedRefunds":             "its check joins records by what is not their account",
	"TestList_pages":                       "its fixture truncates the times of a column",
	"TestPlans_useIndexes":                 "the plans of a coordinator name no index",
	"TestReaper_rowsLocked":                "it locks rows of all accounts",
	"TestRunOnce_lockedCandidate":          "it locks rows of all accounts",
	"TestRunOnce_noConnectionWhileSending": "a daemon of Citus has a transaction too",
	"TestRun_plans":                        "the plans of a coordinator name no index",
}

// place creates orders with concurrent clients that retry until they have an answer.
func place(ctx context.Context, api *programtest.API, prefix string, orders, clients int) (time.Duration, error) {
	caller, err := client.New(client.Config{BaseURL: api.Base, APIKey: api.Key})
	if err != nil {
		return 0, err
	}
	defer caller.Close()
	begun := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range clients {
		group.Go(func() error {
			for n := next.Add(1); n <= int64(orders); n = next.Add(1) {
				_, err := caller.CreateOrder(ctx, client.Key(fmt.Sprintf("%s-order-%010d", prefix, n)), client.OrderParams{
					Email: "ada@example.com", Currency: "usd", PaymentMethod: "pm_card_visa",
					Items: []client.Item{{SKU: "tea", Description: "Green tea", Quantity: 2, UnitAmount: 1250}},
				})
				if err != nil {
					return fmt.Errorf("%s order %d: %w", prefix, n, err)
				}
			}
			return nil
		})
	}
	err = group.Wait()
	return time.Since(begun), err
}

// requireConsistent checks the ledger of the provider, the database and the responses.
func requireConsistent(t *testing.T, f *labtest.Fixture, orders int) {
	t.Helper()
	require.Len(t, f.Stripe.Charges(), orders)
	require.Empty(t, f.Stripe.OrdersChargedTwice())
	require.Equal(t, orders, f.Count("SELECT count(*) FROM orders WHERE status = 'paid'"))
	require.Equal(t, orders, f.Count("SELECT count(*) FROM idempotency_keys WHERE recovery_point = 'finished' AND response_code = 201"))
	require.Equal(t, orders, f.Count("SELECT count(DISTINCT id) FROM orders"))
	require.Contains(t, labtest.Run(t, f.Environ, "reconcile"), "Discrepancies: 0")
}
