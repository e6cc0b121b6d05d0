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

// maxScrapes bounds the scrapes at once. One Prometheus needs one, two for high
// availability two.
const maxScrapes = 4

// Config is what a [Metrics] looks at.
type Config struct {
	Pool   *pgxpool.Pool // needed
	Logger *slog.Logger  // needed

	Clock func() time.Time // time.Now; needed

	Limiter *limiter.Limiter // nil for a command without

	// The durations that alerts compare ages with, 0 for a command that does not
	// know them.
	Retention, Grace time.Duration
}

// Metrics holds all metrics of a process. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	http       *prometheus.HistogramVec
	requests   *prometheus.CounterVec
	background *prometheus.CounterVec
	calls      *prometheus.HistogramVec
	commits    *prometheus.HistogramVec
	provider   *prometheus.HistogramVec
	receipts   *prometheus.HistogramVec
	completed  *prometheus.CounterVec
	reaped     prometheus.Counter
	passes     *prometheus.CounterVec
	lastPass   *prometheus.GaugeVec
}

// Where the buckets of durations end, in seconds. An order takes milliseconds of
// ours and up to minutes of the provider's.
var (
	quick = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15}
	slow  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 60}
)

// New returns the metrics of a process, all at zero.
func New(config Config) (*Metrics, error) {
	if config.Pool == nil || config.Logger == nil || config.Clock == nil {
		return nil, errors.New("metrics: a pool, a logger and a clock are needed")
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		http: histogram("http_request_duration_seconds", slow,
			"Requests of the API by the pattern of their route, and what they took.", "method", "route", "status"),
		requests: counter("requests_total",
			"Requests under an Idempotency-Key, and events of the provider, by what they came to.", "outcome"),
		background: counter("background_runs_total",
			"Runs that went on behind a 202 or could have, by what they came to.", "outcome"),
		calls: histogram("step_call_duration_seconds", slow,
			"The external call of a step, by the recovery point it starts from.", "operation", "from", "result"),
		commits: histogram("step_commit_duration_seconds", quick,
			"The transaction of a step with its retries, by the recovery point it starts from.", "operation", "from", "result"),
		provider: histogram("provider_request_duration_seconds", slow,
			"Requests to the payment provider, each send for itself, by what is known of their effect.", "call", "outcome"),
		receipts: histogram("receipt_duration_seconds", slow,
			"Attempts to send a receipt, by what became of them.", "outcome"),
		completed: counter("completer_keys_total",
			"Abandoned keys that this process took, by what became of them.", "result"),
		reaped: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "reaper_keys_deleted_total", Help: "Finished keys past their retention that this process deleted.",
		}),
		passes: counter("passes_total",
			"Passes of completer and reaper in this process.", "command", "result"),
		lastPass: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "last_pass_timestamp_seconds", Help: "When the last pass that went well ended in this process.",
		}, []string{"command"}),
	}
	m.registry.MustRegister( // fails for two of one name only
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
		m.http, m.requests, m.background, m.calls, m.commits, m.provider, m.receipts,
		m.completed, m.reaped, m.passes, m.lastPass,
		poolCollector{config.Pool},
		&backlog{pool: config.Pool, logger: config.Logger, clock: config.Clock},
	)
	m.setting("key_retention_seconds", "How long a finished key is kept (KEY_RETENTION).", config.Retention)
	m.setting("completer_grace_seconds", "Age at which an unfinished key counts as abandoned (COMPLETER_GRACE).", config.Grace)
	// What has not happened yet is 0 and not absent: a rate sees the first one.
	for _, outcome := range api.Outcomes() {
		m.requests.WithLabelValues(outcome)
	}
	return m, nil
}

// namespace begins the name of every metric that is not of a library's.
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

// Handler serves the metrics. What cannot be read is left out, and the rest is
// there.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
	})
}
