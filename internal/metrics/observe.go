package metrics

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// OnRequest records a request, see api.Config.
func (m *Metrics) OnRequest(method, route string, status int, took time.Duration, outcome string) {
	m.http.WithLabelValues(method, cmp.Or(route, "none"), strconv.Itoa(status/100)+"xx").Observe(took.Seconds())
	if outcome != "" {
		m.requests.WithLabelValues(outcome).Inc()
	}
}

// OnStep is an [idempotency.StepHook].
func (m *Metrics) OnStep(ctx context.Context, step idempotency.StepStart) (context.Context, func(idempotency.StepEnd)) {
	return ctx, func(end idempotency.StepEnd) {
		if end.Commit > 0 {
			m.commits.WithLabelValues(step.Operation, string(step.From)).Observe(end.Commit.Seconds())
		}
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
