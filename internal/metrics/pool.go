package metrics

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	poolConnections = describe("pool_connections",
		"Connections to the database, by state.", "state")
	poolMax = describe("pool_max_connections",
		"Maximum number of connections of the pool.")
	poolAcquires = describe("pool_acquires_total",
		"Connections that were acquired from the pool.")
	poolWaits = describe("pool_waits_total",
		"Acquisitions that had to wait: all connections were in use, or a new one was opened.")
	poolWaited = describe("pool_wait_seconds_total",
		"Total time of the waits for a connection.")
	poolTimeouts = describe("pool_acquire_timeouts_total",
		"Acquisitions that were cancelled, mostly by a timeout, before they had a connection.")
)

type poolCollector struct{ pool *pgxpool.Pool }

func (poolCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolConnections, poolMax, poolAcquires, poolWaits, poolWaited, poolTimeouts} {
		descriptions <- d
	}
}

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
		poolTimeouts: float64(stat.CanceledAcquireCount()),
	} {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, total)
	}
}
