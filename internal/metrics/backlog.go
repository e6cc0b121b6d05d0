package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/receipts"
)

const (
	// readingTimeout bounds the queries of a scrape, which take milliseconds.
	// Prometheus cancels a scrape after ten seconds.
	readingTimeout = 3 * time.Second

	// readingAge is how long a reading is reused, whatever the number of scrapes.
	readingAge = 5 * time.Second
)

// backlog collects the metrics about pending work from the database.
type backlog struct {
	pool   *pgxpool.Pool
	logger *slog.Logger
	clock  func() time.Time

	mu   sync.Mutex // held while one scrape reads the database; others wait for it
	last reading
}

type reading struct {
	at       time.Time
	keys     idempotency.Stats
	receipts receipts.Stats
	err      error
}

// Describe sends nothing, because a description would read the database.
func (*backlog) Describe(chan<- *prometheus.Desc) {}

func (b *backlog) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(name, help string, value float64, labels prometheus.Labels) {
		desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, nil, labels)
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	const upHelp = "1 if the metrics about pending work could be read from the database. With 0 they are absent."
	r := b.read()
	if r.err != nil {
		gauge("database_up", upHelp, 0, nil)
		return
	}
	gauge("database_up", upHelp, 1, nil)
	var lag time.Duration
	for _, u := range r.keys.Unfinished {
		labels := prometheus.Labels{"operation": u.Operation, "recovery_point": string(u.Point)}
		gauge("unfinished_keys",
			"Unfinished keys, including those that a run holds and excluding those that need review or an action.", float64(u.Keys), labels)
		gauge("oldest_unfinished_key_age_seconds",
			"Time since the oldest unfinished key was claimed.", u.Oldest.Seconds(), labels)
		lag = max(lag, u.OldestUnattempted)
	}
	gauge("completer_lag_seconds",
		"Longest time since the last run of an unfinished key that the completer has not attempted yet. A completer that runs keeps it near its grace.",
		lag.Seconds(), nil)
	gauge("oldest_key_requiring_action_age_seconds",
		"Time since the oldest key that requires an action was claimed. A completer that runs keeps it near the charge window.",
		r.keys.OldestActionRequired.Seconds(), nil)
	gauge("keys_needing_review",
		"Keys that need an operator: the completer has used up its attempts.", float64(r.keys.NeedsReview), nil)
	gauge("oldest_finished_key_age_seconds",
		"Time since the oldest finished key was finished. A reaper that runs keeps it near the retention.", r.keys.OldestFinished.Seconds(), nil)
	gauge("receipts_pending", "Receipts that are still to be sent.", float64(r.receipts.Pending), nil)
	gauge("oldest_receipt_age_seconds", "Age of the oldest pending receipt.", r.receipts.Oldest.Seconds(), nil)
	gauge("receipts_failed", "Receipts that need an operator: they are not tried again.", float64(r.receipts.Failed), nil)
}

// read returns the last reading if it is recent, a failed one too.
func (b *backlog) read() reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.last.at.IsZero() && b.clock().Sub(b.last.at) < readingAge {
		return b.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), readingTimeout)
	defer cancel()
	var r reading
	if r.keys, r.err = idempotency.ReadStats(ctx, b.pool); r.err == nil {
		r.receipts, r.err = receipts.ReadStats(ctx, b.pool)
	}
	if r.err != nil {
		b.logger.WarnContext(ctx, "metrics: pending work cannot be read", "error", r.err)
	}
	r.at = b.clock()
	b.last = r
	return r
}
