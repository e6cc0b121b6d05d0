package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/idempotency"
)

// reapBatch is how many keys one transaction deletes. Fifty take some six
// milliseconds, so that no order waits long behind them: BenchmarkReap in package
// orders measures it.
const reapBatch = 50

// reaper deletes finished keys past their retention: one pass, or one after
// another.
func reaper(ctx context.Context, call invocation) error {
	var config boot.Upkeep
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
	return withEngine(ctx, config, logger, func(engine *idempotency.Engine, _ *pgxpool.Pool) error {
		r, err := newReaper(engine, config.Durations, *batch)
		if err != nil {
			return err
		}
		return schedule.run(ctx, logger, func(ctx context.Context) error {
			if *dryRun {
				n, err := r.Count(ctx)
				if err == nil {
					_, err = fmt.Fprintf(call.stdout, "finished keys older than %s: %d; none was deleted\n", config.KeyRetention, n)
				}
				return err
			}
			return reap(ctx, r, logger)
		})
	})
}

func newReaper(engine *idempotency.Engine, durations boot.Durations, batch int) (*idempotency.Reaper, error) {
	return idempotency.NewReaper(engine, idempotency.ReaperConfig{Retention: durations.KeyRetention.Duration, Batch: batch})
}

func reap(ctx context.Context, r *idempotency.Reaper, logger *slog.Logger) error {
	start := time.Now()
	deleted, err := r.RunOnce(ctx)
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
