package main_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
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
	stdout, _ = programtest.Succeed(t, env, "migrate", "down", "--yes")
	require.Regexp(t, `^rolled back: \d+_\w+\.sql\n$`, stdout)
	programtest.Succeed(t, env, "migrate", "up")
	stdout, _ = programtest.Succeed(t, env, "migrate", "status")
	require.Regexp(t, `^(applied  \d+_\w+\.sql\n)+$`, stdout)

	f := &fixture{t: t, pool: pool, stripe: stripe, environ: env, apiKey: createAccount(t, env)}
	a := f.serve(env, "--shutdown-delay", "0")
	programtest.Eventually(t, func() bool { return a.Ready() == http.StatusOK })
	programtest.RequirePaid(t, a.MustOrder("an-order-key-0001", programtest.Tea))
	require.Equal(t, map[string]int64{"usd": 2500}, stripe.MoneyMoved())
	a.Stop()
	require.Contains(t, a.Stderr.String(), `msg="payment provider" provider=`+provider+` mode=test`)
	require.NotContains(t, a.Stderr.String(), "serving metrics", "ADMIN_ADDR is empty")
}

// After a signal, the process is not ready, then closes its listener and releases the waiters. It still ends
// the runs in progress, also those whose clients have a 202 or are gone (R10, detached work).
func TestServe_stopWaitsForRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.with("ADMIN_ADDR=127.0.0.1:0"))
	var held []*stripetest.Injection
	hold := func() <-chan struct{} {
		held = append(held, f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint}))
		return held[len(held)-1].Reached()
	}
	reached := hold()
	a.Accepted("accepted-order-key-01")
	<-reached
	reached = hold()
	ctx, disconnect := context.WithCancel(t.Context())
	go func() {
		<-reached
		disconnect()
	}()
	_, err := a.Do(ctx, http.MethodPost, "/v1/orders", programtest.Tea, http.Header{"Idempotency-Key": {"disconnected-order-key"}})
	require.ErrorIs(t, err, context.Canceled)
	reached = hold()
	running := a.OrderAsync("held-order-key-01")
	<-reached
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
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		status, _ := programtest.Get(t, a.Admin()+path)
		require.Equal(t, want, status, "a draining process still serves %s", path)
	}

	held[2].Release()
	first := <-running
	require.NoError(t, first.Err)
	programtest.RequirePaid(t, first.Response)
	require.Equal(t, 2, f.count("SELECT count(*) FROM orders WHERE status = 'paid'"))
	require.False(t, a.HasExited(), "two runs have no client any more")
	held[0].Release()
	held[1].Release()
	require.Zero(t, a.Wait())
	require.Contains(t, a.Stderr.String(), "msg=stopped")
	require.Equal(t, 4, f.count("SELECT count(*) FROM orders WHERE status = 'paid'"))
	require.Equal(t, 4, f.staged())
	require.Len(t, f.stripe.Charges(), 4)
}

// The reader of the log dies during an order. The order and the process go on.
func TestServe_logReaderGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.environ, "--shutdown-delay", "0")
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	order := a.OrderAsync("log-reader-gone-1")
	<-held.Reached()
	a.Stderr.Close()
	a.Stdout.Close()
	for range 20 { // the first log line closes the pipe, and the others find it closed
		require.Equal(t, http.StatusNotFound, a.MustDo(http.MethodGet, "/v1/orders/unknown", "", nil).Status)
	}
	held.Release()
	done := <-order
	require.NoError(t, done.Err)
	require.Equal(t, http.StatusCreated, done.Status)
	programtest.RequirePaid(t, a.MustOrder("log-reader-gone-2", programtest.Tea))
	a.Stop()
}

// A process that may open few files says so at the start, and keeps some of them for the database and the
// provider, so an order is made although idle clients want more connections than it may open.
func TestServe_fewDescriptors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	self, err := os.Executable()
	require.NoError(t, err)
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	p := programtest.StartProgram(t, shell, f.with(programtest.BeProgram+"=1"), "-c", `ulimit -n 128 && exec "$0" serve --shutdown-delay 0`, self)
	address := p.WaitFor(&p.Stderr, `listening.*address"?[=:]"?([0-9.]+:[0-9]+)`)[1]
	require.Regexp(t, `RLIMIT_NOFILE is too low.* limit=128 needed=3064 connections=32`, p.Stderr.String())
	a := &programtest.API{Process: p, Base: "http://" + address, Key: f.apiKey}
	for range 40 { // in two turns, because a client has five seconds to send its request
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer conn.Close()
	}
	programtest.RequirePaid(t, a.MustOrder("an-order-with-few-files", programtest.Tea))
	require.NotContains(t, p.Stderr.String(), "too many open files")
	p.Stop()
}

func TestAdmin_separateListener(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.with("ADMIN_ADDR=127.0.0.1:0"), "--shutdown-delay", "0")
	admin := a.Admin()
	programtest.RequirePaid(t, a.MustOrder("an-order-to-count", programtest.Tea))
	for path, want := range map[string]string{
		"/metrics":              "\norders_requests_total{outcome=\"created\"} 1\n",
		"/healthz":              "ok",
		"/readyz":               "ok",
		"/debug/pprof/":         "goroutine",
		"/debug/pprof/cmdline":  "serve",
		"/v1/orders":            "not found",
		"/problems/not-found":   "not found",
		"/debug/pprof/symbol?x": "num_symbols",
	} {
		_, body := programtest.Get(t, admin+path)
		require.Contains(t, body, want, path)
		require.NotContains(t, body, "an-order-to-count")
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/console"} {
		status, _ := programtest.Get(t, a.Base+path)
		require.Equal(t, http.StatusNotFound, status, path)
	}
	a.Stop()
}
