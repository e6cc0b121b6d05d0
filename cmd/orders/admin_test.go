package main_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/payments/stripetest"
)

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

	// A draining process still serves its metrics.
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	running := a.OrderAsync("an-order-that-is-held")
	<-held.Reached()
	a.Signal(syscall.SIGTERM)
	programtest.Eventually(t, func() bool { return a.Ready() == 0 })
	status, _ := programtest.Get(t, admin+"/metrics")
	require.Equal(t, http.StatusOK, status)
	status, _ = programtest.Get(t, admin+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	held.Release()
	require.NoError(t, (<-running).Err)
	require.Zero(t, a.Wait())
}

// The other commands have an admin listener only if ADMIN_ADDR is set and they repeat.
func TestAdmin_otherCommands(t *testing.T) {
	t.Parallel()
	env := newFixture(t).with("ADMIN_ADDR=127.0.0.1:0")
	for command, want := range map[string]string{
		"worker":    `orders_jobs_pending{kind="receipt"} 0`,
		"completer": `orders_maintenance_runs_total{command="completer",result="ok"} 1`,
		"reaper":    `orders_maintenance_runs_total{command="reaper",result="ok"} 1`,
	} {
		p := programtest.Start(t, env, command, "--every", "1h")
		admin := p.Admin()
		programtest.Eventually(t, func() bool {
			_, body := programtest.Get(t, admin+"/metrics")
			return strings.Contains(body, "\n"+want+"\n")
		})
		p.Stop()
	}
	_, stderr := programtest.Succeed(t, env, "completer")
	require.NotContains(t, stderr, "serving metrics", "a single run has no admin listener")
}
