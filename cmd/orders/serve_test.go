package main_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

func TestServe_fromEmptyDatabase(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	// Migrations ignore the timeouts of the database.
	execute(t, pool, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = 10', current_database()); END $$")
	stripe, provider := programtest.FakeStripe(t)
	env := programtest.Environ(t, "DATABASE_URL="+dbtest.URL(pool), "STRIPE_SECRET_KEY=sk_test_fixture", "STRIPE_API_BASE="+provider, "LISTEN_ADDR=127.0.0.1:0")

	stdout, _ := programtest.Succeed(t, env, "migrate", "status")
	require.Regexp(t, `^(pending  \d+_\w+\.sql\n)+$`, stdout)
	stdout, _ = programtest.Succeed(t, env, "migrate", "up")
	require.Regexp(t, `^applied: [1-9]\d*\n$`, stdout)
	stdout, _ = programtest.Succeed(t, env, "migrate", "up")
	require.Equal(t, "applied: 0\n", stdout)
	stdout, _ = programtest.Succeed(t, env, "migrate", "down", "--yes")
	require.Regexp(t, `^rolled back: \d+_\w+\.sql\n$`, stdout)
	programtest.Succeed(t, env, "migrate", "up")
	stdout, _ = programtest.Succeed(t, env, "migrate", "status")
	require.Regexp(t, `^(applied  \d+_\w+\.sql\n)+$`, stdout)

	f := &fixture{t: t, pool: pool, stripe: stripe, environ: env, apiKey: createAccount(t, env)}
	a := f.serve(env, "--shutdown-delay", "0")
	programtest.Eventually(t, func() bool { return a.Ready() == http.StatusOK })
	first := a.MustOrder("an-order-key-0001", programtest.Tea)
	id := programtest.RequirePaid(t, first)
	again := a.MustOrder("an-order-key-0001", programtest.Tea)
	require.Equal(t, first.Body, again.Body)
	require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
	require.Len(t, stripe.ChargesByOrder(id), 1)
	require.Equal(t, map[string]int64{"usd": 2500}, stripe.MoneyMoved())
	a.Stop()
	require.Contains(t, a.Stderr.String(), `msg="payment provider" provider=`+provider+` mode=test`)
	require.NotContains(t, a.Stderr.String(), "serving metrics", "ADMIN_ADDR is empty")
}

// After a signal, the process is not ready, then closes its listener and releases the
// waiters, and still responds to the order in progress.
func TestServe_stopWaitsForACharge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.with("ADMIN_ADDR=127.0.0.1:0"))
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	running := a.OrderAsync("held-order-key-01")
	<-held.Reached()
	waiting := a.OrderAsync("held-order-key-01", "wait=30")
	programtest.Eventually(t, func() bool {
		_, body := programtest.Get(t, a.Admin()+"/debug/pprof/goroutine?debug=1")
		return strings.Contains(body, "idempotency.waiters.wait")
	})
	programtest.Eventually(t, func() bool { return a.Ready() == http.StatusOK })

	a.Signal(syscall.SIGTERM)
	programtest.Eventually(t, func() bool { return a.Ready() == http.StatusServiceUnavailable })
	programtest.RequirePaid(t, a.MustOrder("late-order-key-01", programtest.Tea))
	released := <-waiting
	require.NoError(t, released.Err)
	require.Equal(t, http.StatusConflict, released.Status)
	require.Equal(t, "1", released.Header.Get("Retry-After"))
	programtest.Eventually(t, func() bool { return a.Ready() == 0 })
	require.False(t, a.HasExited())

	held.Release()
	first := <-running
	require.NoError(t, first.Err)
	programtest.RequirePaid(t, first.Response)
	require.Zero(t, a.Wait())
	require.Contains(t, a.Stderr.String(), "msg=stopped")
	require.Len(t, f.stripe.Charges(), 2)
}

func TestServe_secondSignal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.environ)
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	lost := a.OrderAsync("held-order-key-02")
	<-held.Reached()
	a.Signal(syscall.SIGTERM)
	a.WaitFor(&a.Stderr, "stopping")
	programtest.Eventually(t, func() bool {
		a.Signal(syscall.SIGTERM) // the second one kills once the first one is handled
		return a.HasExited()
	})
	require.Error(t, (<-lost).Err)
	require.Equal(t, -1, a.Wait())
	require.Equal(t, syscall.SIGTERM, a.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}
