package metrics

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	poolConnections = describe("pool_connections",
		"Connections to the database, by what they do.", "state")
	poolMax = describe("pool_max_connections",
		"The most connections that the pool may have.")
	poolAcquires = describe("pool_acquires_total",
		"How often a connection was taken from the pool.")
	poolWaits = describe("pool_waits_total",
		"How often somebody waited for a connection, because all were in use or one had to be made.")
	poolWaited = describe("pool_wait_seconds_total",
		"How long they waited for connections, together.")
	poolGivenUp = describe("pool_waits_given_up_total",
		"How often a wait for a connection was given up.")
)

// poolCollector shows the statistics of a pool.
type poolCollector struct{ pool *pgxpool.Pool }

// Describe is part of prometheus.Collector.
func (poolCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolConnections, poolMax, poolAcquires, poolWaits, poolWaited, poolGivenUp} {
		descriptions <- d
	}
}

// Collect is part of prometheus.Collector.
func (c poolCollector) Collect(metrics chan<- prometheus.Metric) {
	stat := c.pool.Stat()
	for state, n := range map[string]int32{
		"idle":   stat.IdleConns(),
		"in_use": stat.AcquiredConns(),
		"opened": stat.ConstructingConns(),
	} {
		metrics <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue, float64(n), state)
	}
	metrics <- prometheus.MustNewConstMetric(poolMax, prometheus.GaugeValue, float64(stat.MaxConns()))
	for d, total := range map[*prometheus.Desc]float64{
		poolAcquires: float64(stat.AcquireCount()),
		poolWaits:    float64(stat.EmptyAcquireCount()),
		poolWaited:   stat.EmptyAcquireWaitTime().Seconds(),
		poolGivenUp:  float64(stat.CanceledAcquireCount()),
	} {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, total)
	}
}
