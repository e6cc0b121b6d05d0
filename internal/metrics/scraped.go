package metrics

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/orders-api/events"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/receipts"
)

// readingTimeout bounds the queries of a scrape, which Prometheus cancels after ten seconds.
const readingTimeout = 3 * time.Second

// scraped collects what is read for each scrape: from the process, and from the database the metrics
// about pending work.
type scraped struct{ Config }

// Describe sends nothing, because the gauges are known only when the database was read.
func (scraped) Describe(chan<- *prometheus.Desc) {}

func (s scraped) Collect(metrics chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help string, value float64, labels prometheus.Labels) {
		desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, nil, labels)
		metrics <- prometheus.MustNewConstMetric(desc, kind, value)
	}
	gauge := func(name, help string, value float64, labels prometheus.Labels) {
		send(prometheus.GaugeValue, name, help, value, labels)
	}
	send(prometheus.CounterValue, "pool_wait_seconds_total", "Total time of the waits for a connection.",
		s.Pool.Stat().EmptyAcquireWaitTime().Seconds(), nil)
	send(prometheus.CounterValue, "limiter_rejected_total", "Requests that the limiter rejected: a bound was reached, or the wait for a permit timed out.",
		float64(s.Limiter.Stats().Rejected), nil)
	gauge("key_retention_seconds", "How long a finished key is kept (KEY_RETENTION).", s.Retention.Seconds(), nil)

	ctx, cancel := context.WithTimeout(context.Background(), readingTimeout)
	defer cancel()
	keys, errKeys := idempotency.ReadStats(ctx, s.Pool)
	kinds := []string{receipts.Kind, events.Kind, orders.ChangeJob}
	staged, errStaged := jobs.ReadStats(ctx, s.Pool, kinds...)
	unread, errUnread := reconcile.Unread(ctx, s.Pool)
	disputes, errDisputes := reconcile.CountUnansweredDisputes(ctx, s.Pool)
	discrepancies, errDiscrepancies := jobs.CountOpen(ctx, s.Pool)
	const upHelp = "1 if the database accepts writes and is as this process needs it: for serve, what /readyz reports. With 0, the metrics about pending work are absent."
	if err := cmp.Or(s.Ready(), errKeys, errStaged, errUnread, errDisputes, errDiscrepancies); err != nil {
		s.Logger.WarnContext(ctx, "metrics: pending work cannot be read", "error", err)
		gauge("database_up", upHelp, 0, nil)
		return
	}
	gauge("database_up", upHelp, 1, nil)
	for _, u := range keys.Unfinished {
		labels := prometheus.Labels{"operation": u.Operation, "recovery_point": string(u.Point)}
		gauge("unfinished_keys",
			"Unfinished keys, including those that a run holds and excluding those that require an action.", float64(u.Keys), labels)
		gauge("stuck_keys", "Those of orders_unfinished_keys that were claimed more than an hour ago.", float64(u.Old), labels)
	}
	gauge("oldest_unfinished_key_age_seconds",
		"Time since the oldest unfinished key was claimed, also of one that requires an action. A completer that runs keeps it below the charge window.",
		keys.OldestUnfinished.Seconds(), nil)
	gauge("oldest_finished_key_age_seconds",
		"Time since the oldest finished key was finished. A reaper that runs keeps it near the retention.", keys.OldestFinished.Seconds(), nil)
	for _, kind := range kinds {
		labels := prometheus.Labels{"kind": kind}
		gauge("jobs_pending", "Jobs that are still to be done: receipts, events to the shop, and changes at the provider.", float64(staged[kind].Pending), labels)
		gauge("oldest_job_age_seconds", "Age of the oldest pending job.", staged[kind].Oldest.Seconds(), labels)
		gauge("jobs_failed", "Jobs that need an operator: they are not tried again.", float64(staged[kind].Failed), labels)
	}
	gauge("provider_events_unread_seconds",
		"Time since the provider's list of events was read to its end. A worker that runs keeps it near a minute.", unread.Seconds(), nil)
	gauge("disputes_needing_response", "Disputes that are lost unless the shop responds at the provider.", float64(disputes), nil)
	for _, d := range discrepancies {
		gauge("discrepancies", "Differences between our records and the provider's that need an operator, by what was found.", float64(d.Open), prometheus.Labels{"found": d.What})
	}
}
