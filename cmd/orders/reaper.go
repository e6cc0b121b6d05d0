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

// reapBatch is how many keys one transaction deletes. Fifty take about six
// milliseconds, so that orders do not wait long for them (BenchmarkReap in package
// orders).
const reapBatch = 50

// reaperEnv is the environment of orders reaper.
type reaperEnv struct {
	boot.Maintenance
	boot.OptionalAdmin
}

// reaper deletes finished keys whose retention is over, once or repeatedly.
func reaper(ctx context.Context, call invocation) error {
	var config reaperEnv
	var interval interval
	flags := call.flags()
	interval.flag(flags)
	batch := flags.Int("batch", reapBatch, "how many keys one transaction deletes")
	dryRun := flags.Bool("dry-run", false, "count the keys and delete nothing")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if *batch < 1 {
		return wrongUsage(call.name, "--batch must be positive")
	}
	if err := interval.validate(call.name); err != nil {
		return err
	}
	if err := boot.Load(&config); err != nil {
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
		stopAdmin, err := startAdmin(ctx, interval.adminAddr(config.OptionalAdmin), m, nil, logger)
		if err != nil {
			return err
		}
		defer stopAdmin()
		return interval.run(ctx, call.name, logger, func(ctx context.Context) error {
			if *dryRun {
				n, err := r.Count(ctx)
				if err == nil {
					_, err = fmt.Fprintf(call.stdout, "finished keys older than %s: %d; none was deleted\n", config.KeyRetention, n)
				}
				return err
			}
			return reap(ctx, r, m, logger)
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
		logger.WarnContext(ctx, "unfinished keys are older than the retention and not deleted; see orders keys list",
			"keys", overdue)
	}
	return err
}
