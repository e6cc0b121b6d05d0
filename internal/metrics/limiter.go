package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.com/orders-api/internal/limiter"
)

var (
	limiterCapacity = describe("limiter_capacity",
		"Maximum number of requests at work at the same time.")
	limiterRunning = describe("limiter_running",
		"Requests at work: they use the processors and the database.")
	limiterBacklog = describe("limiter_backlog",
		"New requests that wait for a permit.")
	limiterInFlight = describe("limiter_in_flight",
		"Requests in progress, including those that wait for a permit or for the payment provider.")
	limiterRejected = describe("limiter_rejected_total",
		"Requests that the limiter rejected: a bound was reached, or the wait for a permit timed out.")
)

type limiterCollector struct{ limiter *limiter.Limiter }

func (limiterCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{limiterCapacity, limiterRunning, limiterBacklog, limiterInFlight, limiterRejected} {
		descriptions <- d
	}
}

func (c limiterCollector) Collect(metrics chan<- prometheus.Metric) {
	stats := c.limiter.Stats()
	for d, n := range map[*prometheus.Desc]int{
		limiterCapacity: stats.Capacity,
		limiterRunning:  stats.Running,
		limiterBacklog:  stats.Backlog,
		limiterInFlight: stats.InFlight,
	} {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	metrics <- prometheus.MustNewConstMetric(limiterRejected, prometheus.CounterValue, float64(stats.Rejected))
}
