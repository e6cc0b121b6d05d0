package monitoring_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// length is the length of the series, with one sample per minute. 0x90 is a constant,
// 0+60x90 grows by one per second. Alerts are evaluated at the end.
const length = 90 * time.Minute

// situations are, for each alert, series with which it fires and series with which it
// does not.
var situations = map[string]struct{ fires, silent []string }{
	"OrdersDown": {
		fires:  []string{`up{job="orders", instance="a"} 1x80 0x10`},
		silent: []string{`up{job="orders", instance="a"} 1x89 0`, `up{job="other"} 0x90`}, // just restarted; another job
	},
	"OrdersDatabaseUnreadable": {
		fires:  []string{`orders_database_up{command="serve"} 0x90`, `orders_database_up{command="worker"} 1x90`}, // one cannot use it
		silent: []string{`orders_database_up{command="serve"} 1x89 0`, `orders_database_up{command="worker"} 1x90`},
	},
	"OrdersServerErrors": {
		fires: []string{
			`orders_http_request_duration_seconds_count{route="/v1/orders", status_class="2xx"} 0+54x90`,
			`orders_http_request_duration_seconds_count{route="/v1/orders", status_class="5xx"} 0+6x90`,
		},
		silent: []string{
			`orders_http_request_duration_seconds_count{route="/v1/orders", status_class="2xx"} 0+59x90`,
			`orders_http_request_duration_seconds_count{route="/v1/orders", status_class="4xx"} 0+60x90`,
			`orders_http_request_duration_seconds_count{route="/v1/orders", status_class="5xx"} 0+1x90`,
			`orders_http_request_duration_seconds_count{route="/readyz", status_class="5xx"} 0+60x90`, // a process that drains
		},
	},
	"OrdersKeysStuck": {
		fires:  []string{`orders_stuck_keys{operation="create_order", recovery_point="charge_created", instance="a"} 0x80 1x10`},
		silent: []string{`orders_stuck_keys{operation="create_order", recovery_point="charge_created", instance="a"} 3x80 0x10`},
	},
	"OrdersKeyOverdue": {
		fires:  []string{`orders_oldest_unfinished_key_age_seconds 88000+60x90`},
		silent: []string{`orders_oldest_unfinished_key_age_seconds 80000+60x90`},
	},
	"OrdersReaperBehind": {
		fires:  []string{`orders_oldest_finished_key_age_seconds 291600x90`, `orders_key_retention_seconds 259200x90`},
		silent: []string{`orders_oldest_finished_key_age_seconds 260000x90`, `orders_key_retention_seconds 259200x90`},
	},
	"OrdersMaintenanceFailing": {
		fires: []string{`orders_maintenance_runs_total{command="completer", result="failed"} 0+1x90`},
		silent: []string{
			`orders_maintenance_runs_total{command="completer", result="failed"} 0x70 1x20`, // once
			`orders_maintenance_runs_total{command="completer", result="ok"} 0+1x90`,
		},
	},
	"OrdersReceiptsLate": {
		fires:  []string{`orders_oldest_job_age_seconds{kind="receipt"} 0+60x90`},
		silent: []string{`orders_oldest_job_age_seconds{kind="receipt"} 60x90`},
	},
	"OrdersReceiptsFailed": {
		fires:  []string{`orders_jobs_failed{kind="receipt"} 0x80 2x10`},
		silent: []string{`orders_jobs_failed{kind="receipt"} 0x90`},
	},
	"OrdersProviderRejectsCredentials": {
		fires: []string{`orders_provider_request_duration_seconds_count{call="create", outcome="needs_operator"} 0x80 1+1x10`},
		silent: []string{
			`orders_provider_request_duration_seconds_count{call="confirm", outcome="declined"} 0+10x90`,
			`orders_provider_request_duration_seconds_count{call="create", outcome="needs_operator"} 7x90`, // long ago
		},
	},
	"OrdersProviderRefuses": {
		fires:  []string{`orders_provider_request_duration_seconds_count{call="confirm", outcome="refused"} 0x60 5+3x30`},
		silent: []string{`orders_provider_request_duration_seconds_count{call="confirm", outcome="refused"} 0x80 4x10`}, // some clients' mistakes
	},
	"OrdersRefundFailedLate": {
		fires:  []string{`orders_discrepancies{found="refund_failed_late"} _x80 1x10`},
		silent: []string{`orders_discrepancies{found="orphaned_intent"} 1x90`},
	},
	"OrdersDiscrepancies": {
		fires: []string{`orders_discrepancies{found="events_missed", instance="a"} _x80 1x10`},
		silent: []string{
			`orders_discrepancies{found="refund_failed_late"} 1x90`,
			`orders_discrepancies{found="duplicate_charge"} 1x80 _x10`, // an operator has acknowledged it
		},
	},
	"OrdersProviderEventsBehind": {
		fires:  []string{`orders_provider_events_unread_seconds 0+60x90`},
		silent: []string{`orders_provider_events_unread_seconds 60x90`},
	},
	"OrdersProviderChangeFailed": {
		fires:  []string{`orders_jobs_failed{kind="provider_change"} 0x80 1x10`},
		silent: []string{`orders_jobs_failed{kind="provider_change"} 0x90`},
	},
	"OrdersDisputed": {
		fires:  []string{`orders_disputes_needing_response{instance="a"} 0x80 1x10`},
		silent: []string{`orders_disputes_needing_response{instance="a"} 1x80 0x10`}, // the seller has responded
	},
	"OrdersEventsLate": {
		fires:  []string{`orders_oldest_job_age_seconds{kind="event"} 0+60x90`},
		silent: []string{`orders_oldest_job_age_seconds{kind="event"} 60x90`},
	},
	"OrdersEventsFailed": {
		fires:  []string{`orders_jobs_failed{kind="event"} 0x80 1x10`},
		silent: []string{`orders_jobs_failed{kind="event"} 0x90`},
	},
	"OrdersWebhooksRejected": {
		fires: []string{
			`orders_http_request_duration_seconds_count{route="/v1/webhooks/stripe", status_class="4xx"} 0+1x90`,
		},
		silent: []string{
			`orders_http_request_duration_seconds_count{route="/v1/webhooks/stripe", status_class="2xx"} 0+10x90`,
			`orders_http_request_duration_seconds_count{route="/v1/webhooks/stripe", status_class="4xx"} 0+1x90`, // of an outsider
		},
	},
	"OrdersProviderOutcomeUnknown": {
		fires: []string{
			`orders_provider_request_duration_seconds_count{call="confirm", outcome="answered"} 0+50x90`,
			`orders_provider_request_duration_seconds_count{call="confirm", outcome="unknown"} 0+6x90`,
			`orders_provider_request_duration_seconds_count{call="create", outcome="not_executed"} 0+4x90`,
		},
		silent: []string{
			`orders_provider_request_duration_seconds_count{call="confirm", outcome="answered"} 0+50x90`,
			`orders_provider_request_duration_seconds_count{call="confirm", outcome="declined"} 0+50x90`,
			`orders_provider_request_duration_seconds_count{call="confirm", outcome="unknown"} 0+1x90`,
		},
	},
	"OrdersProviderSlow": {
		fires: []string{
			`orders_provider_request_duration_seconds_bucket{call="confirm", le="5"} 0+50x90`,
			`orders_provider_request_duration_seconds_bucket{call="confirm", le="10"} 0+60x90`,
			`orders_provider_request_duration_seconds_bucket{call="confirm", le="+Inf"} 0+60x90`,
		},
		silent: []string{
			`orders_provider_request_duration_seconds_bucket{call="confirm", le="1"} 0+58x90`,
			`orders_provider_request_duration_seconds_bucket{call="confirm", le="10"} 0+60x90`,
			`orders_provider_request_duration_seconds_bucket{call="confirm", le="+Inf"} 0+60x90`,
			`orders_provider_request_duration_seconds_bucket{call="list", le="10"} 0x90`,
			`orders_provider_request_duration_seconds_bucket{call="list", le="+Inf"} 0+60x90`,
		},
	},
	"OrdersShedding": {
		fires:  []string{`orders_limiter_rejected_total{instance="a"} 0+120x90`},
		silent: []string{`orders_limiter_rejected_total{instance="a"} 0x80 900x10`}, // a burst
	},
	"OrdersPoolSaturated": {
		fires:  []string{`orders_pool_wait_seconds_total{instance="a"} 0+120x90`},
		silent: []string{`orders_pool_wait_seconds_total{instance="a"} 0+6x90`},
	},
	"OrdersLeasesLost": {
		fires: []string{`orders_requests_total{outcome="lease_lost"} 0x80 1x10`},
		silent: []string{
			`orders_requests_total{outcome="lease_lost"} 1x90`,
			`orders_requests_total{outcome="in_progress"} 0+60x90`,
		},
	},
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, rule := range rules(t) {
		situation, known := situations[rule.Alert]
		require.True(t, known, "no test checks the alert %s", rule.Alert)
		seen[rule.Alert] = true
		require.True(t, fires(t, rule.Expr, time.Duration(rule.For), situation.fires), "%s does not fire", rule.Alert)
		require.False(t, fires(t, rule.Expr, time.Duration(rule.For), situation.silent), "%s fires", rule.Alert)
		require.False(t, fires(t, rule.Expr, time.Duration(rule.For), nil), "%s fires without metrics", rule.Alert)
	}
	require.Len(t, seen, len(situations), "a situation names an alert that does not exist")
}

// fires reports whether an alert fires at the end.
func fires(t *testing.T, expression string, wait time.Duration, series []string) bool {
	t.Helper()
	end := int(length / time.Minute)
	return firesIn(t, load(t, series), expression, wait, end-int(wait/time.Minute), end)
}

// firesIn reports whether an alert fires in the minutes from one to another: some series was
// present for as long as the alert waits.
func firesIn(t *testing.T, data storage.Queryable, expression string, wait time.Duration, from, to int) bool {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{}),
	})
	defer engine.Close()
	minute := func(n int) time.Time { return time.Unix(0, 0).Add(time.Duration(n) * time.Minute) }
	query, err := engine.NewRangeQuery(t.Context(), data, nil, expression, minute(from), minute(to), time.Minute)
	require.NoError(t, err)
	defer query.Close()
	found, err := query.Exec(t.Context()).Matrix()
	require.NoError(t, err)
	for _, one := range found {
		for i, present := 0, 0; i < len(one.Floats); i++ {
			if i > 0 && one.Floats[i].T-one.Floats[i-1].T > time.Minute.Milliseconds() {
				present = 0
			}
			if present++; present == int(wait/time.Minute)+1 {
				return true
			}
		}
	}
	return false
}

// load parses series in the notation of Prometheus's own tests.
func load(t *testing.T, descriptions []string) storage.Queryable {
	t.Helper()
	var all []promql.Series
	for _, description := range descriptions {
		metric, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(description)
		require.NoError(t, err, description)
		require.GreaterOrEqual(t, len(values), int(length/time.Minute)+1, description)
		one := promql.Series{Metric: metric}
		for i, value := range values {
			if !value.Omitted {
				one.Floats = append(one.Floats, promql.FPoint{T: (time.Duration(i) * time.Minute).Milliseconds(), F: value.Value})
			}
		}
		all = append(all, one)
	}
	return queryable(all)
}

func queryable(all []promql.Series) storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			set := &seriesSet{}
			for _, one := range all {
				if matches(one.Metric, matchers) {
					set.rest = append(set.rest, promql.NewStorageSeries(one))
				}
			}
			return set
		},
	}}
}

func matches(metric labels.Labels, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		if !matcher.Matches(metric.Get(matcher.Name)) {
			return false
		}
	}
	return true
}

type seriesSet struct {
	at   storage.Series
	rest []storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}

func (s *seriesSet) At() storage.Series              { return s.at }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

func TestRules_knownMetrics(t *testing.T) {
	t.Parallel()
	metrics := allMetrics(t)
	for _, rule := range rules(t) {
		requireKnown(t, metrics, rule.Expr)
	}
}

func TestDashboard_knownMetrics(t *testing.T) {
	t.Parallel()
	metrics := allMetrics(t)
	for _, expressions := range dashboard(t) {
		for _, expression := range expressions {
			requireKnown(t, metrics, expression)
		}
	}
}

// A metric that no alert, dashboard or remedy reads costs each scrape and each reader of the code.
func TestMetrics_needed(t *testing.T) {
	t.Parallel()
	var read strings.Builder
	for _, file := range []string{rulesFile, dashboardFile, runbookFile} {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		read.Write(content)
	}
	content, err := os.ReadFile(metricsFile)
	require.NoError(t, err)
	for line := range strings.Lines(string(content)) {
		name, _, _ := strings.Cut(line, "{")
		require.True(t, regexp.MustCompile(`\b`+name+`(_bucket|_count)?\b`).MatchString(read.String()), name)
	}
}

// An incomplete or too long list of metrics would hide errors.
func TestAllMetrics_unknown(t *testing.T) {
	t.Parallel()
	metrics := allMetrics(t)
	require.NotContains(t, metrics, "orders_request_total")
	require.NotContains(t, metrics["orders_requests_total"], "route")
	require.NotContains(t, metrics, "orders_http_request_duration_seconds")
	require.Contains(t, metrics["orders_http_request_duration_seconds_bucket"], "le")
}

func TestScrapeConfiguration(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(scrapeFile)
	require.NoError(t, err)
	var config struct {
		Jobs []struct {
			Name    string `yaml:"job_name"`
			Targets []struct {
				Targets []string
				Labels  map[string]string
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
		Rules []string `yaml:"rule_files"`
	}
	require.NoError(t, yaml.Unmarshal(content, &config))
	require.Equal(t, []string{filepath.Base(rulesFile)}, config.Rules)
	require.Len(t, config.Jobs, 1)
	require.Equal(t, "orders", config.Jobs[0].Name)
	for _, target := range config.Jobs[0].Targets {
		require.Len(t, target.Targets, 1)
		require.NotEmpty(t, target.Labels["command"])
	}
}

func TestRules_runbook(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(runbookFile)
	require.NoError(t, err)
	entries := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^## (Orders\w+)$`).FindAllStringSubmatch(string(content), -1) {
		entries[heading[1]] = true
	}
	for _, rule := range rules(t) {
		require.Contains(t, entries, rule.Alert)
		delete(entries, rule.Alert)
		require.True(t, strings.HasSuffix(rule.Annotations["runbook_url"], "/docs/runbook.md#"+strings.ToLower(rule.Alert)), rule.Alert)
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		require.Contains(t, []string{"page", "ticket"}, rule.Labels["severity"], rule.Alert)
	}
	require.Empty(t, entries, "the runbook has entries without an alert")
}
