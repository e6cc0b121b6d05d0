package main_test

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

func TestServe_fromEmptyDatabase(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	stripe, provider := standIn(t)
	env := environ(t, "DATABASE_URL="+dbtest.URL(pool), "STRIPE_SECRET_KEY=sk_test_fixture", "STRIPE_API_BASE="+provider, "LISTEN_ADDR=127.0.0.1:0")

	code, stdout, stderr := run(t, env, "migrate", "status")
	require.Zero(t, code, stderr)
	require.Regexp(t, `^(pending  \d{5}_\w+\.sql\n)+$`, stdout)
	code, stdout, stderr = run(t, env, "migrate", "up")
	require.Zero(t, code, stderr)
	require.Regexp(t, `^applied: [1-9]\d*\n$`, stdout)
	code, stdout, stderr = run(t, env, "migrate", "up")
	require.Zero(t, code, stderr)
	require.Equal(t, "applied: 0\n", stdout)
	code, stdout, stderr = run(t, env, "migrate", "down")
	require.Zero(t, code, stderr)
	require.Regexp(t, `^rolled back: \d{5}_\w+\.sql\n$`, stdout)
	code, _, stderr = run(t, env, "migrate", "up")
	require.Zero(t, code, stderr)
	code, stdout, stderr = run(t, env, "migrate", "status")
	require.Zero(t, code, stderr)
	require.Regexp(t, `^(applied  \d{5}_\w+\.sql\n)+$`, stdout)

	f := &fixture{t: t, pool: pool, stripe: stripe, environ: env, apiKey: createAccount(t, env)}
	a := f.serve(env, "--shutdown-delay", "0")
	require.Equal(t, http.StatusOK, a.ready())
	first, err := a.order("an-order-key-0001", tea)
	require.NoError(t, err)
	id := requirePaid(t, first)
	again, err := a.order("an-order-key-0001", tea)
	require.NoError(t, err)
	require.Equal(t, first.body, again.body)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	read, err := a.do(t.Context(), http.MethodGet, "/v1/orders/"+id, "", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, read.status)
	console, err := a.do(t.Context(), http.MethodGet, "/console", "", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, console.status, "only dev and demo have a console")
	docs, err := a.do(t.Context(), http.MethodGet, "/docs", "", nil)
	require.NoError(t, err)
	require.NotContains(t, docs.body, "api-key")
	require.Len(t, stripe.ChargesByOrder(id), 1)
	require.Equal(t, map[string]int64{"usd": 2500}, stripe.MoneyMoved())
	a.stop()
	require.Contains(t, a.stderr.String(), `msg="payment provider" provider=`+provider+` mode=test`)
	require.NotContains(t, a.stderr.String(), "serving metrics", "ADMIN_ADDR is empty")
}

// Migrations ignore the timeouts of the role.
func TestMigrate_roleTimeouts(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	_, err := pool.Exec(t.Context(), `
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET statement_timeout = 1', current_database());
END $$`)
	require.NoError(t, err)
	code, _, stderr := run(t, environ(t, "DATABASE_URL="+dbtest.URL(pool)), "migrate", "up")
	require.Zero(t, code, stderr)
}

// After a signal, the process is not ready, then closes its listener, and still
// responds to the order in progress.
func TestServe_stopWaitsForACharge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.environ) // with the default --shutdown-delay
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	running := a.orderAsync("held-order-key-01")
	<-held.Reached()
	require.Equal(t, http.StatusOK, a.ready())

	a.signal(syscall.SIGTERM)
	eventually(t, func() bool { return a.ready() == http.StatusServiceUnavailable })
	late, err := a.order("late-order-key-01", tea)
	require.NoError(t, err, "during --shutdown-delay requests are accepted")
	requirePaid(t, late)
	eventually(t, func() bool { return a.ready() == 0 })
	require.False(t, a.hasExited())

	held.Release()
	first := <-running
	require.NoError(t, first.err)
	requirePaid(t, first.apiResponse)
	require.Zero(t, a.wait())
	require.Contains(t, a.stderr.String(), "msg=stopped")
	require.Len(t, f.stripe.Charges(), 2)
}

// Readiness has connections of its own: a probe does not wait for orders.
func TestServe_readyWhileThePoolIsBusy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const one = "&pool_max_conns=1&lock_timeout=60000&statement_timeout=60000"
	a := f.serve(f.with("DATABASE_URL="+dbtest.URL(f.pool)+one), "--shutdown-delay", "0")
	tx, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE orders IN EXCLUSIVE MODE")
	require.NoError(t, err)
	created := a.orderAsync("waiting-order-key-1")
	eventually(t, func() bool {
		var waiting bool
		require.NoError(t, f.pool.QueryRow(t.Context(),
			"SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'orders'::regclass)").Scan(&waiting))
		return waiting
	})
	require.Equal(t, http.StatusOK, a.ready())
	require.Empty(t, created)
	require.NoError(t, tx.Rollback(t.Context()))
	requirePaid(t, (<-created).apiResponse)
	a.stop()
}

func TestServe_secondSignal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.environ)
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	lost := a.orderAsync("held-order-key-02")
	<-held.Reached()
	a.signal(syscall.SIGTERM)
	a.waitFor(&a.stderr, "stopping")
	eventually(t, func() bool {
		a.signal(syscall.SIGTERM) // the second one kills once the first one is handled
		return a.hasExited()
	})
	require.Error(t, (<-lost).err)
	require.Equal(t, -1, a.wait())
	require.Equal(t, syscall.SIGTERM, a.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// Two processes on one database act as one API. Concurrent requests to both charge an
// order once and get one response. If one process dies, the other takes its keys over.
func TestServe_twoProcesses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	env := f.with("STRIPE_TIMEOUT=1s", "LOCK_TIMEOUT=2s")
	a, b := f.serve(env, "--shutdown-delay", "0"), f.serve(env, "--shutdown-delay", "0")
	const orders = 4
	var responses [orders][4]apiResponse
	var clients errgroup.Group
	for n := range orders {
		for i, process := range []*api{a, b, b, a} {
			clients.Go(func() (err error) {
				responses[n][i], err = process.untilPaid(t.Context(), fmt.Sprintf("shared-order-key-%d", n))
				return err
			})
		}
	}
	require.NoError(t, clients.Wait(), "every response is 201 or retryable")
	for _, ofOrder := range responses {
		id := requirePaid(t, ofOrder[0])
		replays := 0
		for _, got := range ofOrder {
			require.Equal(t, ofOrder[0].body, got.body)
			if got.header.Get("Idempotent-Replayed") == "true" {
				replays++
			}
		}
		require.Equal(t, len(ofOrder)-1, replays)
		require.Len(t, f.stripe.ChargesByOrder(id), 1)
	}

	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: confirmEndpoint, Times: stripetest.Always})
	lost := a.orderAsync("orphan-order-key-1")
	<-held.Reached()
	early, err := b.order("orphan-order-key-1", tea)
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, early.status, "in progress in the other process")
	a.signal(syscall.SIGKILL)
	require.Error(t, (<-lost).err)
	held.Release()
	orphan, err := b.untilPaid(t.Context(), "orphan-order-key-1")
	require.NoError(t, err)
	require.Len(t, f.stripe.ChargesByOrder(requirePaid(t, orphan)), 1)
	require.Len(t, f.stripe.Charges(), orders+1)
	require.Equal(t, orders+1, f.staged())
	b.stop()
}
