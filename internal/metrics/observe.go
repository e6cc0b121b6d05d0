package metrics

import (
	"strconv"
	"strings"
	"time"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// API is what an API is observed by.
func (m *Metrics) API() api.Observer {
	return api.Observer{
		OnRequest: func(a api.RequestEvent) {
			m.http.WithLabelValues(a.Method, route(a.Route), class(a.Status)).Observe(a.Duration.Seconds())
			if a.Outcome != "" {
				m.requests.WithLabelValues(a.Outcome).Inc()
			}
		},
		OnBackgroundRun: func(outcome string) { m.background.WithLabelValues(outcome).Inc() },
	}
}

// route names requests that no route took.
func route(pattern string) string {
	if pattern == "" {
		return "none"
	}
	return pattern
}

// class is 2xx for 201.
func class(status int) string { return strconv.Itoa(status/100) + "xx" }

// Step records a step of an engine. A part that did not run has no duration.
func (m *Metrics) Step(step idempotency.StepStart, end idempotency.StepEnd) {
	if end.Call > 0 {
		m.calls.WithLabelValues(step.Operation, string(step.From), result(end.Commit > 0)).Observe(end.Call.Seconds())
	}
	if end.Commit > 0 {
		m.commits.WithLabelValues(step.Operation, string(step.From), result(end.Err == nil)).Observe(end.Commit.Seconds())
	}
}

func result(ok bool) string {
	if ok {
		return "ok"
	}
	return "failed"
}

// Exchange observes the payment provider.
func (m *Metrics) Exchange(e payments.Exchange) {
	outcome := "answered"
	switch {
	case e.Err == nil:
	case e.Err.Misuse:
		outcome = "misuse" // our API key, our parameters, or somebody else's payment: a person's
	default:
		outcome = word(e.Err.Outcome.String())
	}
	m.provider.WithLabelValues(word(e.Call), outcome).Observe(e.Took.Seconds())
}

// word makes one word of several.
func word(s string) string { return strings.ReplaceAll(s, " ", "_") }

// Receipt observes a worker.
func (m *Metrics) Receipt(outcome string, took time.Duration) {
	m.receipts.WithLabelValues(outcome).Observe(took.Seconds())
}

// Completed counts what a pass of the completer came to.
func (m *Metrics) Completed(r idempotency.CompleterResult, err error) {
	for kind, n := range map[string]int{
		"completed":    r.Completed,
		"skipped":      r.Skipped,
		"failed":       r.Failed,
		"needs_review": r.NeedsReview,
	} {
		m.completed.WithLabelValues(kind).Add(float64(n))
	}
	m.passed("completer", err)
}

// Reaped counts what a pass of the reaper deleted.
func (m *Metrics) Reaped(deleted int, err error) {
	m.reaped.Add(float64(deleted))
	m.passed("reaper", err)
}

func (m *Metrics) passed(command string, err error) {
	m.passes.WithLabelValues(command, result(err == nil)).Inc()
	if err == nil {
		m.lastPass.WithLabelValues(command).SetToCurrentTime()
	}
}
