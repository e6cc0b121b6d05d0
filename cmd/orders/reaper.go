package main

import (
	"context"
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

func reaper(ctx context.Context, call *invocation) error {
	var config struct {
		boot.Maintenance
		boot.OptionalAdmin
	}
	every := everyFlag(call)
	dryRun := call.flags.Bool("dry-run", false, "count the keys and delete nothing")
	if err := call.load(&config, "every"); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	return withEngine(ctx, config.Maintenance, logger, func(engine *idempotency.Engine, pool *pgxpool.Pool) error {
		r, err := newReaper(engine, config.KeyRetention)
		if err != nil {
			return err
		}
		m, err := metrics.New(metrics.Config{Pool: pool, Logger: logger, Retention: config.KeyRetention})
		if err != nil {
			return err
		}
		return runOrRepeat(ctx, call.name, *every, config.AdminAddr, m, logger, func(ctx context.Context) error {
			if !*dryRun {
				return reap(ctx, r, m, logger)
			}
			n, err := r.Count(ctx)
			return call.printResult(err, "finished keys older than %s: %d; none was deleted\n", config.KeyRetention, n)
		})
	})
}

func newReaper(engine *idempotency.Engine, retention time.Duration) (*idempotency.Reaper, error) {
	return idempotency.NewReaper(engine, idempotency.ReaperConfig{Retention: retention, Batch: reapBatch})
}

func reap(ctx context.Context, r *idempotency.Reaper, m *metrics.Metrics, logger *slog.Logger) error {
	start := time.Now()
	deleted, err := r.RunOnce(ctx)
	m.Reaped(deleted, err)
	logger.InfoContext(ctx, "reaper pass", "deleted", deleted, "took", time.Since(start))
	return err
}
