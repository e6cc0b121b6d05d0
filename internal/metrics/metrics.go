package metrics

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/orders-api/api"
	"example.com/orders-api/internal/limiter"
)

// maxScrapes bounds concurrent scrapes: a redundant pair of Prometheus servers needs
// two.
const maxScrapes = 4

// Config configures a [Metrics].
type Config struct {
	Pool   *pgxpool.Pool // required
	Logger *slog.Logger  // required

	Limiter *limiter.Limiter // nil for a command without one

	// Waiters is [idempotency.Engine.Waiters], nil for a command without an engine.
	Waiters func() int

	// Retention and Grace are what alerts compare ages with, 0 if unknown.
	Retention, Grace time.Duration
}

// Metrics holds all metrics of a process. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	http        *prometheus.HistogramVec
	requests    *prometheus.CounterVec
	calls       *prometheus.HistogramVec
	commits     *prometheus.HistogramVec
	provider    *prometheus.HistogramVec
	receipts    *prometheus.HistogramVec
	completed   *prometheus.CounterVec
	reaped      *prometheus.CounterVec
	maintenance *prometheus.CounterVec
}

// The upper bounds of the buckets in seconds: milliseconds in this process, up to
// minutes at the provider.
var (
	quick = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15}
	slow  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 60}
)

// New returns the metrics of a process, all of them 0.
func New(config Config) (*Metrics, error) {
	if config.Pool == nil || config.Logger == nil {
		return nil, errors.New("metrics: a pool and a logger are required")
	}
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
		&backlog{config.Pool, config.Logger},
	)
	m.http = m.histogram("http_request_duration_seconds", slow,
		"Duration of API requests, by route and class of the status.", "method", "route", "status_class")
	m.requests = m.counter("requests_total",
		"Requests with an Idempotency-Key and events of the payment provider, by outcome.", "outcome")
	m.calls = m.histogram("step_call_duration_seconds", slow,
		"Duration of a step's external call with its retries, by the recovery point where the step begins. "+
			"The result is failed if the call had no final outcome.", "operation", "from", "result")
	m.commits = m.histogram("step_commit_duration_seconds", quick,
		"Duration of a step's transaction with its retries, by the recovery point where the step begins. "+
			"The result is failed if the database failed, and rejected if the step refused the request or another run has the key.",
		"operation", "from", "result")
	m.provider = m.histogram("provider_request_duration_seconds", slow,
		"Duration of HTTP requests to the payment provider, by what is known about their effect.", "call", "outcome")
	m.receipts = m.histogram("receipt_duration_seconds", slow,
		"Duration of attempts to send a receipt, by outcome.", "outcome")
	m.completed = m.counter("completer_keys_total",
		"Abandoned keys that this process tried to complete, by result.", "result")
	m.reaped = m.counter("reaper_keys_deleted_total",
		"Finished keys that this process deleted after their retention.")
	m.maintenance = m.counter("maintenance_runs_total",
		"Runs of the completer and the reaper in this process, by result.", "command", "result")
	// rate() ignores the first value of a new series, so each starts at 0.
	m.reaped.WithLabelValues()
	for _, outcome := range api.Outcomes() {
		m.requests.WithLabelValues(outcome)
	}
	m.registerPool(config.Pool)
	if config.Limiter != nil {
		m.registerLimiter(config.Limiter)
	}
	if config.Waiters != nil {
		m.gauge("waiters", "Requests that wait for a key which another run holds (Prefer: wait).", nil, config.Waiters)
	}
	m.setting("key_retention_seconds", "How long a finished key is kept (KEY_RETENTION).", config.Retention)
	m.setting("completer_grace_seconds", "Idle time after which an unfinished key counts as abandoned (COMPLETER_GRACE).", config.Grace)
	return m, nil
}

func (m *Metrics) registerPool(pool *pgxpool.Pool) {
	const help = "Connections to the database, by state."
	m.gauge("pool_connections", help, prometheus.Labels{"state": "idle"}, func() int { return int(pool.Stat().IdleConns()) })
	m.gauge("pool_connections", help, prometheus.Labels{"state": "in_use"}, func() int { return int(pool.Stat().AcquiredConns()) })
	m.gauge("pool_connections", help, prometheus.Labels{"state": "opened"}, func() int { return int(pool.Stat().ConstructingConns()) })
	m.gauge("pool_max_connections", "Maximum number of connections of the pool.", nil, func() int { return int(pool.Stat().MaxConns()) })
	m.count("pool_wait_seconds_total", "Total time of the waits for a connection.",
		func() float64 { return pool.Stat().EmptyAcquireWaitTime().Seconds() })
}

func (m *Metrics) registerLimiter(l *limiter.Limiter) {
	m.gauge("limiter_capacity", "Maximum number of requests at work at the same time.",
		nil, func() int { return l.Stats().Capacity })
	m.gauge("limiter_running", "Requests at work: they use the processors and the database.",
		nil, func() int { return l.Stats().Running })
	m.gauge("limiter_backlog", "New requests that wait for a permit.",
		nil, func() int { return l.Stats().Backlog })
	m.gauge("limiter_in_flight", "Requests in progress, including those that wait for a permit or for the payment provider.",
		nil, func() int { return l.Stats().InFlight })
	m.count("limiter_rejected_total", "Requests that the limiter rejected: a bound was reached, or the wait for a permit timed out.",
		func() float64 { return float64(l.Stats().Rejected) })
}

// namespace is the prefix of the program's own metrics.
const namespace = "orders"

func (m *Metrics) histogram(name string, buckets []float64, help string, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	return h
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

// gauge and count read their value at each scrape.
func (m *Metrics) gauge(name, help string, labels prometheus.Labels, read func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(read()) }))
}

func (m *Metrics) count(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, read))
}

func (m *Metrics) setting(name, help string, value time.Duration) {
	if value > 0 {
		m.registry.MustRegister(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, value.Seconds))
	}
}

// Handler serves the metrics, except those that cannot be read.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
	})
}
