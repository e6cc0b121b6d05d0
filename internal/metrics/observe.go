package metrics

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
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
		if end.Call > 0 {
			m.calls.WithLabelValues(step.Operation, string(step.From), result(end.Commit > 0)).Observe(end.Call.Seconds())
		}
		if end.Commit > 0 {
			m.commits.WithLabelValues(step.Operation, string(step.From), commitResult(end.Err)).Observe(end.Commit.Seconds())
		}
	}
}

// commitResult separates failures of the database from others, such as a lost lease.
func commitResult(err error) string {
	if err != nil && !errors.Is(err, postgres.ErrUnavailable) {
		return "rejected"
	}
	return result(err == nil)
}

func result(ok bool) string {
	if ok {
		return "ok"
	}
	return "failed"
}

// ProviderAttempt records a request to the payment provider.
func (m *Metrics) ProviderAttempt(e payments.HTTPAttempt) {
	m.provider.WithLabelValues(e.Call, e.Outcome()).Observe(e.Took.Seconds())
}

// Receipt records an attempt to send a receipt.
func (m *Metrics) Receipt(outcome string, took time.Duration) {
	m.receipts.WithLabelValues(outcome).Observe(took.Seconds())
}

// Event records an attempt to send an event to the shop's endpoint.
func (m *Metrics) Event(outcome string, took time.Duration) {
	m.events.WithLabelValues(outcome).Observe(took.Seconds())
}

// Completed records a run of the completer.
func (m *Metrics) Completed(r idempotency.CompleterResult, err error) {
	for result, n := range completerResults(r) {
		m.completed.WithLabelValues(result).Add(float64(n))
	}
	m.maintained("completer", err)
}

func completerResults(r idempotency.CompleterResult) map[string]int {
	return map[string]int{
		"completed":       r.Completed,
		"skipped":         r.Skipped,
		"failed":          r.Failed,
		"needs_review":    r.NeedsReview,
		"requires_action": r.ActionRequired,
	}
}

// Reaped records a run of the reaper.
func (m *Metrics) Reaped(deleted int, err error) {
	m.reaped.WithLabelValues().Add(float64(deleted))
	m.maintained("reaper", err)
}

func (m *Metrics) maintained(command string, err error) {
	m.maintenance.WithLabelValues(command, result(err == nil)).Inc()
}
