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

// reapBatch is how many keys one transaction deletes. Fifty take some six
// milliseconds, so that no order waits long behind them: BenchmarkReap in package
// orders measures it.
const reapBatch = 50

// reaperEnv is the environment of orders reaper.
type reaperEnv struct {
	boot.Upkeep
	boot.SideAdmin
}

// reaper deletes finished keys past their retention: one pass, or one after
// another.
func reaper(ctx context.Context, call invocation) error {
	var config reaperEnv
	var schedule schedule
	flags := call.flags()
	schedule.flag(flags, "the pass")
	batch := flags.Int("batch", reapBatch, "how many keys one transaction deletes")
	dryRun := flags.Bool("dry-run", false, "count, and delete nothing")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if *batch < 1 {
		return wrongUsage(call.name, "--batch must be positive")
	}
	if err := schedule.check(call.name); err != nil {
		return err
	}
	if err := boot.Load(&config); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	return withEngine(ctx, config.Upkeep, logger, func(engine *idempotency.Engine, pool *pgxpool.Pool) error {
		r, err := newReaper(engine, config.Durations, *batch)
		if err != nil {
			return err
		}
		m, err := metrics.New(metrics.Config{
			Pool: pool, Logger: logger, Clock: time.Now, Retention: config.KeyRetention.Duration,
		})
		if err != nil {
			return err
		}
		stopAdmin, err := startAdmin(ctx, schedule.admin(config.SideAdmin), m, nil, logger)
		if err != nil {
			return err
		}
		defer stopAdmin()
		return schedule.run(ctx, logger, func(ctx context.Context) error {
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
		logger.WarnContext(ctx, "keys are unfinished although they are past the retention; they are kept (orders keys list)",
			"keys", overdue)
	}
	return err
}
