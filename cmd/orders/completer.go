package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/metrics"
)

// What one pass takes, and at how many keys it works at the same time. A provider
// that allows 25 requests a second in test mode answers eight lanes.
const (
	passLimit       = 10_000
	passConcurrency = 8
)

// completerEnv is the environment of orders completer.
type completerEnv struct {
	boot.Keys
	boot.SideAdmin
	boot.Completer
}

// completer finishes what clients abandoned: one pass, or one after another.
func completer(ctx context.Context, call invocation) error {
	var config completerEnv
	var schedule schedule
	flags := call.flags()
	schedule.flag(flags, "the pass")
	limit := flags.Int("limit", passLimit, "the most keys to take in one pass")
	concurrency := flags.Int("concurrency", passConcurrency, "how many keys to work on at the same time")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if *limit < 1 || *concurrency < 1 {
		return wrongUsage(call.name, "--limit and --concurrency must be positive")
	}
	if err := schedule.check(call.name); err != nil {
		return err
	}
	if err := boot.Load(&config); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	return withBackend(ctx, config.Database, config.Stripe, config.Durations, logger, func(b *backend) error {
		c, err := newCompleter(b, config.Durations, config.Completer, *limit, *concurrency)
		if err != nil {
			return err
		}
		stopAdmin, err := startAdmin(ctx, schedule.admin(config.SideAdmin), b.metrics, nil, logger)
		if err != nil {
			return err
		}
		defer stopAdmin()
		return schedule.run(ctx, logger, func(ctx context.Context) error { return complete(ctx, c, b.metrics, logger) })
	})
}

func newCompleter(b *backend, durations boot.Durations, config boot.Completer, limit, concurrency int) (*idempotency.Completer, error) {
	return idempotency.NewCompleter(b.engine, b.orders.Operation, idempotency.CompleterConfig{
		Grace:       durations.CompleterGrace.Duration,
		MaxAttempts: config.MaxAttempts.Int,
		Limit:       limit,
		Concurrency: concurrency,
	})
}

func complete(ctx context.Context, c *idempotency.Completer, m *metrics.Metrics, logger *slog.Logger) error {
	stop := context.AfterFunc(ctx, func() { logger.InfoContext(ctx, "stopping: the keys in hand are finished, no more are taken") })
	defer stop()
	start := time.Now()
	pass, err := c.RunOnce(ctx)
	m.Completed(pass, err)
	logger.InfoContext(ctx, "completer pass",
		"completed", pass.Completed,
		"busy", pass.Skipped,
		"failed", pass.Failed,
		"needs_review", pass.NeedsReview,
		"took", time.Since(start))
	if err == nil && pass.Failed+pass.NeedsReview > 0 {
		err = fmt.Errorf("abandoned keys not completed: %d to be tried again, %d need review (orders keys list)",
			pass.Failed, pass.NeedsReview)
	}
	return err
}
