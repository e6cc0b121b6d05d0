package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.com/orders-api/idempotency"
)

var (
	gatePlaces = describe("gate_places",
		"The most that may be at work behind a gate: runs, or those who only read.", "gate")
	gateAtWork = describe("gate_at_work",
		"How many are at work behind a gate.", "gate")
	gateUnderWay = describe("gate_under_way",
		"How many are behind a gate, with those who wait for the provider or another run.", "gate")
	gateMost = describe("gate_under_way_max",
		"The most that may be behind a gate.", "gate")
	gateTurnedAway = describe("gate_turned_away_total",
		"How many a gate turned away, because there is too much to do or their account has its share.", "gate")
)

// gateCollector shows how full the gates are, by their names. One that is nil
// lets everybody in and has nothing to show.
type gateCollector struct{ gates map[string]*idempotency.Gate }

// Describe is part of prometheus.Collector.
func (gateCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{gatePlaces, gateAtWork, gateUnderWay, gateMost, gateTurnedAway} {
		descriptions <- d
	}
}

// Collect is part of prometheus.Collector.
func (c gateCollector) Collect(metrics chan<- prometheus.Metric) {
	for name, gate := range c.gates {
		if gate == nil {
			continue
		}
		stats := gate.Stats()
		for d, n := range map[*prometheus.Desc]int{
			gatePlaces:   stats.Places,
			gateAtWork:   stats.AtWork,
			gateUnderWay: stats.UnderWay,
			gateMost:     stats.Runs,
		} {
			metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), name)
		}
		metrics <- prometheus.MustNewConstMetric(gateTurnedAway, prometheus.CounterValue, float64(stats.TurnedAway), name)
	}
}
