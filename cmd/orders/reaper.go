package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/metrics"
)

// reapBatch is how many keys one transaction deletes. Fifty take about six milliseconds
// (BenchmarkReap in bench/orders), so that orders do not wait long.
const reapBatch = 50

func reaper(ctx context.Context, call invocation) error {
	var config struct {
		boot.Maintenance
		boot.OptionalAdmin
	}
	var interval interval
	flags := call.flags()
	interval.flag(flags)
	batch := flags.Int("batch", reapBatch, "how many keys one transaction deletes")
	dryRun := flags.Bool("dry-run", false, "count the keys and delete nothing")
	if err := call.load(flags, &config, "batch", "every"); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	return withEngine(ctx, config.Maintenance, logger, func(engine *idempotency.Engine, pool *pgxpool.Pool) error {
		r, err := newReaper(engine, config.Durations, *batch)
		if err != nil {
			return err
		}
		m, err := metrics.New(metrics.Config{
			Pool: pool, Logger: logger, Retention: config.KeyRetention.Duration,
		})
		if err != nil {
			return err
		}
		return interval.runWithAdmin(ctx, call.name, config.OptionalAdmin, m, logger, func(ctx context.Context) error {
			if !*dryRun {
				return reap(ctx, r, m, logger)
			}
			n, err := r.Count(ctx)
			if err == nil {
				_, err = fmt.Fprintf(call.stdout, "finished keys older than %s: %d; none was deleted\n", config.KeyRetention, n)
			}
			return err
		})
	})
}

func newReaper(engine *idempotency.Engine, durations boot.Durations, batch int) (*idempotency.Reaper, error) {
	return idempotency.NewReaper(engine, idempotency.ReaperConfig{Retention: durations.KeyRetention.Duration, Batch: batch})
}

func reap(ctx context.Context, r *idempotency.Reaper, m *metrics.Metrics, logger *slog.Logger) error {
	start := time.Now()
	deleted, err := r.RunOnce(ctx)
	m.Reaped(deleted, err)
	logger.InfoContext(ctx, "reaper pass", "deleted", deleted, "took", time.Since(start))
	if err != nil || ctx.Err() != nil {
		return err
	}
	overdue, err := r.Overdue(ctx)
	if overdue > 0 {
		logger.WarnContext(ctx, "unfinished keys are older than the retention and not deleted; see orders keys list", "keys", overdue)
	}
	return err
}
