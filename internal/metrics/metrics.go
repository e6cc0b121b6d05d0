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

	"example.com/orders-api/internal/admission"
	"example.com/orders-api/payments"
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
