package main_test

import (
	"bufio"
	"flag"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

var update = flag.Bool("update", false, "write the list of metrics, "+metricsList)

// metricsList is the file that lists all metrics, for the alert rules and the dashboard.
const metricsList = "../../internal/metrics/testdata/metrics.txt"

func (p *process) admin() string {
	p.t.Helper()
	return "http://" + p.waitFor(&p.stderr, `serving metrics.*\baddress"?[=:]"?([0-9.]+:[0-9]+)`)[1]
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	return getAs(t, "", url)
}

func getAs(t *testing.T, host, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	request.Host = host
	client := http.Client{Timeout: waitTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestAdmin_separateListener(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.with("ADMIN_ADDR=127.0.0.1:0"), "--shutdown-delay", "0")
	admin := a.admin()
	response := a.mustOrder("an-order-to-count", tea)
	requirePaid(t, response)
	status, body := get(t, admin+"/metrics")
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
		status, body := get(t, admin+path)
		require.Equal(t, http.StatusOK, status, path)
		require.Contains(t, body, want, path)
	}
	for _, path := range []string{"/v1/orders", "/docs", "/openapi.yaml", "/problems/not-found"} {
		status, _ := get(t, admin+path)
		require.Equal(t, http.StatusNotFound, status, path)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/heap"} {
		status, _ := getAs(t, "evil.example:8081", admin+path)
		require.Equal(t, http.StatusMisdirectedRequest, status, path)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/cmdline"} {
		status, _ := get(t, a.base+path)
		require.Equal(t, http.StatusNotFound, status, path)
	}

	// A draining process still serves its metrics.
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	running := a.orderAsync("an-order-that-is-held")
	<-held.Reached()
	a.signal(syscall.SIGTERM)
	eventually(t, func() bool { return a.ready() == 0 })
	status, _ = get(t, admin+"/metrics")
	require.Equal(t, http.StatusOK, status)
	status, _ = get(t, admin+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	held.Release()
	require.NoError(t, (<-running).err)
	require.Zero(t, a.wait())
}

// The other commands have an admin listener only if ADMIN_ADDR is set and they repeat.
func TestAdmin_otherCommands(t *testing.T) {
	t.Parallel()
	env := newFixture(t).with("ADMIN_ADDR=127.0.0.1:0", "RECEIPTS_DIR="+t.TempDir())
	for command, want := range map[string]string{
		"worker --every 1h":    "orders_receipts_pending 0\n",
		"completer --every 1h": `orders_maintenance_runs_total{command="completer",result="ok"} 1` + "\n",
		"reaper --every 1h":    `orders_maintenance_runs_total{command="reaper",result="ok"} 1` + "\n",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			p := start(t, env, strings.Fields(command)...)
			admin := p.admin()
			eventually(t, func() bool {
				_, body := get(t, admin+"/metrics")
				return strings.Contains(body, "\n"+want)
			})
			p.stop()
		})
	}
	for _, command := range []string{"completer", "reaper", "worker --once"} {
		_, stderr := succeed(t, env, strings.Fields(command)...)
		require.NotContains(t, stderr, "serving metrics", "a single run has no admin listener")
	}
}

// The list of metrics is read from orders dev, which has all of them.
func TestGenerated(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	stripe, provider := fakeStripe(t)
	mail := newMailServer(t, "")
	a, curl := startDev(t, environ(t, "DATABASE_URL="+dbtest.URL(pool), "STRIPE_SECRET_KEY=rk_test_dev", "STRIPE_API_BASE="+provider,
		"SMTP_URL=smtp://"+mail.address, "LISTEN_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0"))
	requirePaid(t, sendCurl(t, curl))
	eventually(t, func() bool { return len(mail.received()) == 1 })
	held := stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	a.accepted("a-run-that-is-held")
	<-held.Reached()
	var found []string
	eventually(t, func() bool {
		_, body := get(t, a.admin()+"/metrics")
		found = describeMetrics(body)
		all := strings.Join(found, "\n")
		return strings.Contains(all, "orders_unfinished_keys") &&
			strings.Contains(all, "orders_receipt_duration_seconds") && strings.Contains(all, "orders_maintenance_runs_total")
	})
	held.Release()
	a.stop()
	text := strings.Join(found, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(metricsList, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(metricsList)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "run make generate")
}

func describeMetrics(exposition string) []string {
	help, kind, labels := map[string]string{}, map[string]string{}, map[string]string{}
	label := regexp.MustCompile(`[{,](\w+)="`)
	for lines := bufio.NewScanner(strings.NewReader(exposition)); lines.Scan(); {
		line := lines.Text()
		if fields := strings.SplitN(line, " ", 4); fields[0] == "#" {
			switch name := fields[2]; {
			case !strings.HasPrefix(name, "orders_"):
			case fields[1] == "HELP":
				help[name] = fields[3]
			default:
				kind[name] = fields[3]
			}
			continue
		}
		name := line[:strings.IndexAny(line, "{ ")]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, found := strings.CutSuffix(name, suffix); found && kind[base] == "histogram" {
				name = base
			}
		}
		var names []string
		for _, match := range label.FindAllStringSubmatch(line, -1) {
			if match[1] != "le" {
				names = append(names, match[1])
			}
		}
		labels[name] = strings.Join(names, ",")
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(kind)) {
		list = append(list, name+"{"+labels[name]+"} "+kind[name]+": "+help[name])
	}
	return list
}
