package main_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

var update = flag.Bool("update", false, "write the list of metrics, "+metricsList)

// metricsList is the file that lists all metrics, for the alert rules and the dashboard.
const metricsList = "../../internal/metrics/testdata/metrics.txt"

// The list comes from playground run, because only a process that runs everything has all metrics.
func TestGenerated(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	stripe, provider := programtest.FakeStripe(t)
	mail := programtest.NewMailServer(t, "")
	a, curl := startRun(t, programtest.Environ(t, "DATABASE_URL="+dbtest.URL(pool), "STRIPE_SECRET_KEY=rk_test_dev", "STRIPE_API_BASE="+provider,
		"SMTP_URL=smtp://"+mail.Address, "LISTEN_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0",
		"EVENTS_URL=http://127.0.0.1:1", "EVENTS_SECRET=whsec_"+strings.Repeat("A", 32)))
	for _, line := range []string{"\nStripe       " + provider + " (mode: test)\n", "stripe listen --forward-to " + a.Base + "/v1/webhooks/stripe\n"} {
		require.Contains(t, a.Stdout.String(), line)
	}
	require.NotRegexp(t, "PostgreSQL  |a fake", a.Stdout.String(), "each service is an own one")
	programtest.RequirePaid(t, sendCurl(t, curl))
	require.Len(t, stripe.Charges(), 1)
	programtest.Eventually(t, func() bool { return len(mail.Received()) == 1 })
	_, err := pool.Exec(t.Context(), "INSERT INTO staged_jobs (account_id, id, kind, args, last_error, failed_at) SELECT id, id, 'discrepancy', '{}', 'events_missed', now() FROM accounts")
	require.NoError(t, err)
	programtest.RequirePaid(t, a.MustOrder("an-order-whose-event-fails", programtest.Tea))
	held := stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
	a.Accepted("a-run-that-is-held")
	<-held.Reached()
	var found []string
	programtest.Eventually(t, func() bool {
		_, body := programtest.Get(t, a.Admin()+"/metrics")
		found = describeMetrics(body)
		all := strings.Join(found, "\n")
		return strings.Contains(all, "orders_unfinished_keys") && strings.Contains(all, "orders_discrepancies") &&
			strings.Contains(all, "orders_maintenance_runs_total")
	})
	held.Release()
	a.Stop()
	text := strings.Join(found, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(metricsList, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(metricsList)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "run make generate")
}

// family is a metric's description and its first sample.
var (
	family = regexp.MustCompile(`(?m)^# HELP (orders_\w+) (.*)\n# TYPE \w+ (\w+)\n\w+(?:\{(.*)\})? `)
	label  = regexp.MustCompile(`(?:^|,)(\w+)="`)
)

func describeMetrics(exposition string) (list []string) {
	for _, f := range family.FindAllStringSubmatch(exposition, -1) {
		var labels []string
		for _, name := range label.FindAllStringSubmatch(f[4], -1) {
			if name[1] != "le" {
				labels = append(labels, name[1])
			}
		}
		list = append(list, f[1]+"{"+strings.Join(labels, ",")+"} "+f[3]+": "+f[2])
	}
	return list
}
