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
	// readingTimeout bounds what a scrape waits for the database. The queries take
	// milliseconds, and Prometheus gives up after ten seconds.
	readingTimeout = 3 * time.Second

	// readingAge is how old a reading may be. However many ask, the database is
	// asked this often, and what alerts compare are minutes.
	readingAge = 5 * time.Second
)

// The metrics that are read from the database.
var (
	databaseUp = describe("database_up",
		"Whether the database could be read for the metrics about what is left to do. When it is 0 they are absent.")
	unfinishedKeys = describe("unfinished_keys",
		"Keys that have no answer yet, those in work included and those that need review not.", "operation", "recovery_point")
	oldestUnfinished = describe("oldest_unfinished_key_age_seconds",
		"Age of the oldest unfinished key, since its claim.", "operation", "recovery_point")
	completerLag = describe("completer_lag_seconds",
		"How long an unfinished key has been left alone that the completer has not tried yet, the longest of all. A completer that runs keeps it near its grace.")
	needsReview = describe("needs_review_keys",
		"Keys that the completer has given up: a person's.")
	oldestReview = describe("oldest_needs_review_age_seconds",
		"How long ago the completer gave up the first of the keys that need review.")
	oldestFinished = describe("oldest_finished_key_age_seconds",
		"How long ago the first of the finished keys was finished. The reaper keeps it near the retention.")
	receiptsWaiting = describe("receipts_waiting",
		"Receipts that are not sent yet.")
	oldestReceipt = describe("oldest_receipt_age_seconds",
		"Age of the oldest receipt that is not sent yet.")
	receiptsDead = describe("receipts_dead",
		"Receipts that were given up: a person's.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// backlog is what is left to do, as the database knows it.
type backlog struct {
	pool   *pgxpool.Pool
	logger *slog.Logger
	clock  func() time.Time

	mu   sync.Mutex // held while the database is read, so that one scrape reads and others wait for it
	last reading
}

// reading is what was read at a time.
type reading struct {
	at       time.Time
	keys     idempotency.Stats
	receipts receipts.Stats
	err      error
}

// Describe is part of prometheus.Collector.
func (b *backlog) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		databaseUp, unfinishedKeys, oldestUnfinished, completerLag, needsReview, oldestReview, oldestFinished,
		receiptsWaiting, oldestReceipt, receiptsDead,
	} {
		descriptions <- d
	}
}

// Collect is part of prometheus.Collector.
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
	gauge(needsReview, float64(r.keys.NeedsReview))
	gauge(oldestReview, r.keys.OldestNeedsReview.Seconds())
	gauge(oldestFinished, r.keys.OldestFinished.Seconds())
	gauge(receiptsWaiting, float64(r.receipts.Pending))
	gauge(oldestReceipt, r.receipts.Oldest.Seconds())
	gauge(receiptsDead, float64(r.receipts.Failed))
}

// read reads the database, or returns the last reading while that is fresh. A
// failure counts as one: who cannot answer is not asked more often.
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
		b.logger.WarnContext(ctx, "metrics: what is left to do cannot be read", "error", r.err)
	}
	r.at = b.clock()
	b.last = r
	return r
}
