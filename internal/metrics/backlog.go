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

var (
	databaseUp = describe("database_up",
		"1 if the metrics about pending work could be read from the database. With 0 they are absent.")
	unfinishedKeys = describe("unfinished_keys",
		"Unfinished keys, including those that a run holds and excluding those that need review or an action.", "operation", "recovery_point")
	oldestUnfinished = describe("oldest_unfinished_key_age_seconds",
		"Time since the oldest unfinished key was claimed.", "operation", "recovery_point")
	completerLag = describe("completer_lag_seconds",
		"Longest time since the last run of an unfinished key that the completer has not attempted yet. A completer that runs keeps it near its grace.")
	requiringAction = describe("keys_requiring_action",
		"Keys of orders whose customers must approve the payment.")
	oldestAction = describe("oldest_key_requiring_action_age_seconds",
		"Time since the oldest key that requires an action was claimed. A completer that runs keeps it near the charge window.")
	needingReview = describe("keys_needing_review",
		"Keys that need an operator: the completer has used up its attempts.")
	oldestReview = describe("oldest_key_needing_review_age_seconds",
		"Time since the first of the keys that need review was marked.")
	oldestFinished = describe("oldest_finished_key_age_seconds",
		"Time since the oldest finished key was finished. A reaper that runs keeps it near the retention.")
	receiptsPending = describe("receipts_pending",
		"Receipts that are still to be sent.")
	oldestReceipt = describe("oldest_receipt_age_seconds",
		"Age of the oldest pending receipt.")
	receiptsFailed = describe("receipts_failed",
		"Receipts that need an operator: they are not tried again.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

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

func (b *backlog) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		databaseUp, unfinishedKeys, oldestUnfinished, completerLag, requiringAction, oldestAction, needingReview, oldestReview, oldestFinished,
		receiptsPending, oldestReceipt, receiptsFailed,
	} {
		descriptions <- d
	}
}

func (b *backlog) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	r := b.read()
	if r.err != nil {
		gauge(databaseUp, 0)
		return
	}
	gauge(databaseUp, 1)
	var lag time.Duration
	for _, u := range r.keys.Unfinished {
		gauge(unfinishedKeys, float64(u.Keys), u.Operation, string(u.Point))
		gauge(oldestUnfinished, u.Oldest.Seconds(), u.Operation, string(u.Point))
		lag = max(lag, u.OldestUnattempted)
	}
	gauge(completerLag, lag.Seconds())
	gauge(requiringAction, float64(r.keys.ActionRequired))
	gauge(oldestAction, r.keys.OldestActionRequired.Seconds())
	gauge(needingReview, float64(r.keys.NeedsReview))
	gauge(oldestReview, r.keys.OldestNeedsReview.Seconds())
	gauge(oldestFinished, r.keys.OldestFinished.Seconds())
	gauge(receiptsPending, float64(r.receipts.Pending))
	gauge(oldestReceipt, r.receipts.Oldest.Seconds())
	gauge(receiptsFailed, float64(r.receipts.Failed))
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
