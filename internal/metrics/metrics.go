package metrics

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/payments"
)

// Config configures a [Metrics]. All fields are required.
type Config struct {
	Pool    *pgxpool.Pool
	Ready   func() error // without an error, the gauge database_up is 1
	Logger  *slog.Logger
	Limiter *admission.Limiter
	Waiters func() int

	Retention, Grace time.Duration // alerts compare ages with them
}

// Metrics holds the metrics of a process.
type Metrics struct {
	registry *prometheus.Registry

	http        *prometheus.HistogramVec
	requests    *prometheus.CounterVec
	calls       *prometheus.HistogramVec
	commits     *prometheus.HistogramVec
	provider    *prometheus.HistogramVec
	receipts    *prometheus.HistogramVec
	events      *prometheus.HistogramVec
	completed   *prometheus.CounterVec
	reaped      *prometheus.CounterVec
	maintenance *prometheus.CounterVec
}

// Upper bounds of buckets in seconds: quick is for this process, slow for the provider.
var (
	quick = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15}
	slow  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 60}
)

// New returns the metrics of a process, all of them 0.
func New(config Config) *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
		&backlog{config.Pool, config.Ready, config.Logger},
	)
	r := registrar{promauto.With(registry)}
	m := &Metrics{
		registry: registry,
		http: r.histogram("http_request_duration_seconds", slow,
			"Duration of API requests, by route and class of the status.", "method", "route", "status_class"),
		requests: r.counter("requests_total",
			"Requests with an Idempotency-Key and events of the payment provider, by the outcome in their log line.", "outcome"),
		calls: r.histogram("step_call_duration_seconds", slow,
			"Duration of a step's external call with its retries, by the recovery point where the step begins. "+
				"The result is failed if the call had no final outcome.", "operation", "from", "result"),
		commits: r.histogram("step_commit_duration_seconds", quick,
			"Duration of a step's transaction with its retries, by the recovery point where the step begins. "+
				"The result is failed if the database failed, and rejected if the step refused the request or another run has the key.",
			"operation", "from", "result"),
		provider: r.histogram("provider_request_duration_seconds", slow,
			"Duration of HTTP requests to the payment provider, by the outcome in their log line: "+
				"answered, declined, refused, not_executed, unknown or needs_operator.", "call", "outcome"),
		receipts: r.histogram("receipt_duration_seconds", slow,
			"Duration of attempts to send a receipt, by outcome.", "outcome"),
		events: r.histogram("event_duration_seconds", slow,
			"Duration of attempts to send an event to the shop's endpoint, by outcome.", "outcome"),
		completed: r.counter("completer_keys_total",
			"Abandoned keys that this process tried to complete, by result.", "result"),
		reaped: r.counter("reaper_keys_deleted_total",
			"Finished keys that this process deleted after their retention."),
		maintenance: r.counter("maintenance_runs_total",
			"Runs of the completer and the reaper in this process, by result.", "command", "result"),
	}
	// increase() ignores the first value of a new series, so those that an alert counts start at 0.
	m.reaped.WithLabelValues()
	m.requests.WithLabelValues("lease_lost")
	for _, call := range payments.Calls() {
		m.provider.WithLabelValues(call, payments.OutcomeNeedsOperator)
		m.provider.WithLabelValues(call, payments.Refused.String())
	}
	for result := range completerResults(idempotency.CompleterResult{}) {
		m.completed.WithLabelValues(result)
	}
	for _, command := range []string{"completer", "reaper"} {
		m.maintenance.WithLabelValues(command, result(true))
		m.maintenance.WithLabelValues(command, result(false))
	}
	r.pool(config.Pool)
	r.limiter(config.Limiter)
	r.gauge("waiters", "Requests (Prefer: wait) and events that wait for a key which another run holds.", nil, config.Waiters)
	r.setting("key_retention_seconds", "How long a finished key is kept (KEY_RETENTION).", config.Retention)
	r.setting("completer_grace_seconds", "Idle time after which an unfinished key counts as abandoned (COMPLETER_GRACE).", config.Grace)
	return m
}

// namespace is the prefix of the program's own metrics.
const namespace = "orders"

type registrar struct{ promauto.Factory }

func (r registrar) pool(pool *pgxpool.Pool) {
	for state, read := range map[string]func(*pgxpool.Stat) int32{
		"idle": (*pgxpool.Stat).IdleConns, "in_use": (*pgxpool.Stat).AcquiredConns, "opened": (*pgxpool.Stat).ConstructingConns,
	} {
		r.gauge("pool_connections", "Connections to the database, by state.",
			prometheus.Labels{"state": state}, func() int { return int(read(pool.Stat())) })
	}
	r.gauge("pool_max_connections", "Maximum number of connections of the pool.", nil, func() int { return int(pool.Stat().MaxConns()) })
	r.count("pool_wait_seconds_total", "Total time of the waits for a connection.",
		func() float64 { return pool.Stat().EmptyAcquireWaitTime().Seconds() })
}

func (r registrar) limiter(l *admission.Limiter) {
	r.gauge("limiter_capacity", "Maximum number of requests at work at the same time.",
		nil, func() int { return l.Stats().Permits })
	r.gauge("limiter_running", "Requests at work: they use the processors and the database.",
		nil, func() int { return l.Stats().Running })
	r.gauge("limiter_backlog", "New requests that wait for a permit.",
		nil, func() int { return l.Stats().Backlog })
	r.gauge("limiter_in_flight", "Requests in progress, including those that wait for a permit or for the payment provider.",
		nil, func() int { return l.Stats().InFlight })
	r.count("limiter_rejected_total", "Requests that the limiter rejected: a bound was reached, or the wait for a permit timed out.",
		func() float64 { return float64(l.Stats().Rejected) })
}

func (r registrar) histogram(name string, buckets []float64, help string, labels ...string) *prometheus.HistogramVec {
	return r.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

func (r registrar) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return r.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (r registrar) gauge(name, help string, labels prometheus.Labels, read func() int) {
	r.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(read()) })
}

func (r registrar) count(name, help string, read func() float64) {
	r.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, read)
}

func (r registrar) setting(name, help string, value time.Duration) {
	r.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, value.Seconds)
}

// Handler serves the metrics. Those that cannot be read are absent.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4, // a redundant pair of Prometheus servers needs two
	})
}
