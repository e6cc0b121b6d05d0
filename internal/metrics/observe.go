package metrics

import (
	"cmp"
	"strconv"
	"time"

	"example.com/orders-api/payments"
)

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
