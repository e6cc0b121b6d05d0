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

	Clock func() time.Time // time.Now; required

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
	background  *prometheus.CounterVec
	calls       *prometheus.HistogramVec
	commits     *prometheus.HistogramVec
	provider    *prometheus.HistogramVec
	receipts    *prometheus.HistogramVec
	completed   *prometheus.CounterVec
	reaped      prometheus.Counter
	maintenance *prometheus.CounterVec
	lastSuccess *prometheus.GaugeVec
}

// The upper bounds of the buckets in seconds: milliseconds in this process, up to
// minutes at the provider.
var (
	quick = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15}
	slow  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 60}
)

// New returns the metrics of a process, all of them 0.
func New(config Config) (*Metrics, error) {
	if config.Pool == nil || config.Logger == nil || config.Clock == nil {
		return nil, errors.New("metrics: a pool, a logger and a clock are required")
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		http: histogram("http_request_duration_seconds", slow,
			"Duration of API requests, by route and class of the status.", "method", "route", "status_class"),
		requests: counter("requests_total",
			"Requests with an Idempotency-Key and events of the payment provider, by outcome.", "outcome"),
		background: counter("background_runs_total",
			"Runs of requests with Prefer: respond-async, by outcome.", "outcome"),
		calls: histogram("step_call_duration_seconds", slow,
			"Duration of a step's external call with its retries, by the recovery point where the step begins. "+
				"The result is failed if the call had no final outcome.", "operation", "from", "result"),
		commits: histogram("step_commit_duration_seconds", quick,
			"Duration of a step's transaction with its retries, by the recovery point where the step begins. "+
				"The result is failed if the database failed, and rejected if the step refused the request or another run has the key.",
			"operation", "from", "result"),
		provider: histogram("provider_request_duration_seconds", slow,
			"Duration of HTTP requests to the payment provider, by what is known about their effect.", "call", "outcome"),
		receipts: histogram("receipt_duration_seconds", slow,
			"Duration of attempts to send a receipt, by outcome.", "outcome"),
		completed: counter("completer_keys_total",
			"Abandoned keys that this process tried to complete, by result.", "result"),
		reaped: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "reaper_keys_deleted_total", Help: "Finished keys that this process deleted after their retention.",
		}),
		maintenance: counter("maintenance_runs_total",
			"Runs of the completer and the reaper in this process, by result.", "command", "result"),
		lastSuccess: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "maintenance_last_success_timestamp_seconds",
			Help: "Unix time at which the last successful run of the completer or the reaper ended in this process.",
		}, []string{"command"}),
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
		m.http, m.requests, m.background, m.calls, m.commits, m.provider, m.receipts,
		m.completed, m.reaped, m.maintenance, m.lastSuccess,
		poolCollector{config.Pool},
		&backlog{pool: config.Pool, logger: config.Logger, clock: config.Clock},
	)
	if config.Limiter != nil {
		m.registry.MustRegister(limiterCollector{config.Limiter})
	}
	if config.Waiters != nil {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "waiters", Help: "Requests that wait for a key which another run holds (Prefer: wait).",
		}, func() float64 { return float64(config.Waiters()) }))
	}
	m.setting("key_retention_seconds", "How long a finished key is kept (KEY_RETENTION).", config.Retention)
	m.setting("completer_grace_seconds", "Idle time after which an unfinished key counts as abandoned (COMPLETER_GRACE).", config.Grace)
	// rate() ignores the first value of a new series, so each starts at 0.
	for _, outcome := range api.Outcomes() {
		m.requests.WithLabelValues(outcome)
	}
	return m, nil
}

// namespace is the prefix of the program's own metrics.
const namespace = "orders"

func histogram(name string, buckets []float64, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (m *Metrics) setting(name, help string, value time.Duration) {
	if value > 0 {
		gauge := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
		gauge.Set(value.Seconds())
		m.registry.MustRegister(gauge)
	}
}

// Handler serves the metrics, except those that cannot be read.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
	})
}
