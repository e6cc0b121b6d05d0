package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/orders-api/events"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// Config configures a [Metrics]. All fields are required.
type Config struct {
	Pool    *pgxpool.Pool
	Ready   func() error // without an error, the gauge database_up is 1
	Logger  *slog.Logger
	Limiter *admission.Limiter

	Retention time.Duration // an alert compares an age with it
}

// Metrics holds the metrics of a process.
type Metrics struct {
	registry *prometheus.Registry

	http        *prometheus.HistogramVec
	requests    *prometheus.CounterVec
	provider    *prometheus.HistogramVec
	maintenance *prometheus.CounterVec
}

// namespace is the prefix of the program's own metrics.
const namespace = "orders"

// New returns the metrics of a process, all of them 0.
func New(config Config) *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		scraped{config},
	)
	f := promauto.With(registry)
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: name, Help: help,
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 60},
		}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	m := &Metrics{
		registry: registry,
		http: histogram("http_request_duration_seconds",
			"Duration of API requests, by route and class of the status.", "method", "route", "status_class"),
		requests: counter("requests_total",
			"Requests with an Idempotency-Key and events of the payment provider, by the outcome in their log line.", "outcome"),
		provider: histogram("provider_request_duration_seconds",
			"Duration of HTTP requests to the payment provider, by the outcome in their log line: "+
				"answered, declined, refused, unexpected_state, not_offered, not_executed, unknown or needs_operator.", "call", "outcome"),
		maintenance: counter("maintenance_runs_total",
			"Runs of the completer and the reaper in this process, by result.", "command", "result"),
	}
	// increase() ignores the first value of a new series, so those that an alert counts start at 0.
	m.requests.WithLabelValues("lease_lost")
	for _, call := range payments.Calls() {
		m.provider.WithLabelValues(call, payments.OutcomeNeedsOperator)
		m.provider.WithLabelValues(call, payments.Refused.String())
	}
	for _, command := range []string{"completer", "reaper"} {
		m.maintenance.WithLabelValues(command, "ok")
		m.maintenance.WithLabelValues(command, "failed")
	}
	return m
}

// Handler serves the metrics. Those that cannot be read are absent.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4, // a redundant pair of Prometheus servers needs two
	})
}

// OnRequest records a request, see api.Config.
func (m *Metrics) OnRequest(method, route string, status int, took time.Duration, outcome string) {
	m.http.WithLabelValues(method, cmp.Or(route, "none"), strconv.Itoa(status/100)+"xx").Observe(took.Seconds())
	if outcome != "" {
		m.requests.WithLabelValues(outcome).Inc()
	}
}

// ProviderAttempt records a request to the payment provider.
func (m *Metrics) ProviderAttempt(e payments.HTTPAttempt) {
	m.provider.WithLabelValues(e.Call, e.Outcome()).Observe(e.Took.Seconds())
}

// Maintained records a run of the completer or the reaper.
func (m *Metrics) Maintained(command string, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.maintenance.WithLabelValues(command, result).Inc()
}

// readingTimeout bounds the queries of a scrape, which Prometheus cancels after ten seconds.
const readingTimeout = 3 * time.Second

// scraped collects what is read for each scrape: from the process, and from the database the metrics
// about pending work.
type scraped struct{ Config }

// Describe sends nothing, because the gauges are known only when the database was read.
func (scraped) Describe(chan<- *prometheus.Desc) {}

func (s scraped) Collect(metrics chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help string, value float64, labels prometheus.Labels) {
		desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, nil, labels)
		metrics <- prometheus.MustNewConstMetric(desc, kind, value)
	}
	gauge := func(name, help string, value float64, labels prometheus.Labels) {
		send(prometheus.GaugeValue, name, help, value, labels)
	}
	send(prometheus.CounterValue, "pool_wait_seconds_total", "Total time of the waits for a connection.",
		s.Pool.Stat().EmptyAcquireWaitTime().Seconds(), nil)
	send(prometheus.CounterValue, "limiter_rejected_total", "Requests that the limiter rejected: a bound was reached, or the wait for a permit timed out.",
		float64(s.Limiter.Stats().Rejected), nil)
	gauge("key_retention_seconds", "How long a finished key is kept (KEY_RETENTION).", s.Retention.Seconds(), nil)

	ctx, cancel := context.WithTimeout(context.Background(), readingTimeout)
	defer cancel()
	keys, errKeys := idempotency.ReadStats(ctx, s.Pool)
	kinds := []string{receipts.Kind, events.Kind, orders.ChangeJob}
	staged, errStaged := jobs.ReadStats(ctx, s.Pool, kinds...)
	unread, errUnread := reconcile.Unread(ctx, s.Pool)
	disputes, errDisputes := reconcile.CountUnansweredDisputes(ctx, s.Pool)
	discrepancies, errDiscrepancies := jobs.CountOpen(ctx, s.Pool)
	const upHelp = "1 if the database accepts writes and is as this process needs it: for serve, what /readyz reports. With 0, the metrics about pending work are absent."
	if err := cmp.Or(s.Ready(), errKeys, errStaged, errUnread, errDisputes, errDiscrepancies); err != nil {
		s.Logger.WarnContext(ctx, "metrics: pending work cannot be read", "error", err)
		gauge("database_up", upHelp, 0, nil)
		return
	}
	gauge("database_up", upHelp, 1, nil)
	for _, u := range keys.Unfinished {
		labels := prometheus.Labels{"operation": u.Operation, "recovery_point": string(u.Point)}
		gauge("unfinished_keys",
			"Unfinished keys, including those that a run holds and excluding those that require an action.", float64(u.Keys), labels)
		gauge("stuck_keys", "Those of orders_unfinished_keys that were claimed more than an hour ago.", float64(u.Old), labels)
	}
	gauge("oldest_unfinished_key_age_seconds",
		"Time since the oldest unfinished key was claimed, also of one that requires an action. A completer that runs keeps it below the charge window.",
		keys.OldestUnfinished.Seconds(), nil)
	gauge("oldest_finished_key_age_seconds",
		"Time since the oldest finished key was finished. A reaper that runs keeps it near the retention.", keys.OldestFinished.Seconds(), nil)
	for _, kind := range kinds {
		labels := prometheus.Labels{"kind": kind}
		gauge("jobs_pending", "Jobs that are still to be done: receipts, events to the shop, and changes at the provider.", float64(staged[kind].Pending), labels)
		gauge("oldest_job_age_seconds", "Age of the oldest pending job.", staged[kind].Oldest.Seconds(), labels)
		gauge("jobs_failed", "Jobs that need an operator: they are not tried again.", float64(staged[kind].Failed), labels)
	}
	gauge("provider_events_unread_seconds",
		"Time since the provider's list of events was read to its end. A worker that runs keeps it near a minute.", unread.Seconds(), nil)
	gauge("disputes_needing_response", "Disputes that are lost unless the shop responds at the provider.", float64(disputes), nil)
	for _, d := range discrepancies {
		gauge("discrepancies", "Differences between our records and the provider's that need an operator, by what was found.", float64(d.Open), prometheus.Labels{"found": d.What})
	}
}
