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
	response := a.MustOrder("an-order-to-count", programtest.Tea)
	programtest.RequirePaid(t, response)
	status, body := programtest.Get(t, admin+"/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "\norders_requests_total{outcome=\"created\"} 1\n")
	require.Contains(t, body, "\norders_database_up 1\n")
	require.Contains(t, body, "\nprocess_start_time_seconds ")
	require.NotContains(t, body, "an-order-to-count")

	for path, want := range map[string]string{
		"/healthz":                       "ok",
		"/readyz":                        "ok",
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
		"/debug/pprof/cmdline":           "serve",
	} {
		status, body := programtest.Get(t, admin+path)
		require.Equal(t, http.StatusOK, status, path)
		require.Contains(t, body, want, path)
	}
	for _, path := range []string{"/v1/orders", "/docs", "/openapi.yaml", "/problems/not-found"} {
		status, _ := programtest.Get(t, admin+path)
		require.Equal(t, http.StatusNotFound, status, path)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/heap"} {
		status, _ := programtest.GetAs(t, "evil.example:8081", admin+path)
		require.Equal(t, http.StatusMisdirectedRequest, status, path)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/cmdline"} {
		status, _ := programtest.Get(t, a.Base+path)
		require.Equal(t, http.StatusNotFound, status, path)
	}

	// A draining process still serves its metrics.
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	running := a.OrderAsync("an-order-that-is-held")
	<-held.Reached()
	a.Signal(syscall.SIGTERM)
	programtest.Eventually(t, func() bool { return a.Ready() == 0 })
	status, _ = programtest.Get(t, admin+"/metrics")
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
		"worker --every 1h":    `orders_jobs_pending{kind="receipt"} 0` + "\n",
		"completer --every 1h": `orders_maintenance_runs_total{command="completer",result="ok"} 1` + "\n",
		"reaper --every 1h":    `orders_maintenance_runs_total{command="reaper",result="ok"} 1` + "\n",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			p := programtest.Start(t, env, strings.Fields(command)...)
			admin := p.Admin()
			programtest.Eventually(t, func() bool {
				_, body := programtest.Get(t, admin+"/metrics")
				return strings.Contains(body, "\n"+want)
			})
			p.Stop()
		})
	}
	for _, command := range []string{"completer", "reaper", "worker --once"} {
		_, stderr := programtest.Succeed(t, env, strings.Fields(command)...)
		require.NotContains(t, stderr, "serving metrics", "a single run has no admin listener")
	}
}

func TestServe_noConsole(t *testing.T) {
	t.Parallel()
	a := newFixture(t).shared()
	require.Equal(t, http.StatusNotFound, a.MustDo(http.MethodGet, "/console", "", nil).Status)
	a.Stop()
}
