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

// Defaults. Eight keys at a time stay within the 25 requests per second that Stripe
// allows in test mode.
const (
	completerLimit       = 10_000
	completerConcurrency = 8
)

func completer(ctx context.Context, call invocation) error {
	var config struct {
		boot.KeyCommands
		boot.OptionalAdmin
		boot.Completer
	}
	var interval interval
	flags := call.flags()
	interval.flag(flags)
	limit := flags.Int("limit", completerLimit, "how many keys to resume at most in one run")
	concurrency := flags.Int("concurrency", completerConcurrency, "how many keys to resume at the same time")
	if err := call.load(flags, &config, "limit", "concurrency", "every"); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	return withApp(ctx, config.Database, config.Stripe, config.Durations, logger, func(a *app) error {
		c, err := newCompleter(a, config.Durations, config.Completer, *limit, *concurrency)
		if err != nil {
			return err
		}
		return interval.runWithAdmin(ctx, call.name, config.OptionalAdmin, a.metrics, logger, func(ctx context.Context) error {
			return complete(ctx, c, a.metrics, logger)
		})
	})
}

func newCompleter(a *app, durations boot.Durations, config boot.Completer, limit, concurrency int) (*idempotency.Completer, error) {
	return idempotency.NewCompleter(a.engine, a.orders.Operation, idempotency.CompleterConfig{
		Grace:       durations.CompleterGrace.Duration,
		MaxAttempts: config.MaxAttempts,
		Limit:       limit,
		Concurrency: concurrency,
	})
}

func complete(ctx context.Context, c *idempotency.Completer, m *metrics.Metrics, logger *slog.Logger) error {
	stop := context.AfterFunc(ctx, func() { logger.InfoContext(ctx, "stopping after the keys in progress") })
	defer stop()
	start := time.Now()
	result, err := c.RunOnce(ctx)
	m.Completed(result, err)
	logger.InfoContext(ctx, "completer pass",
		"completed", result.Completed,
		"skipped", result.Skipped,
		"waiting", result.Waiting,
		"failed", result.Failed,
		"needs_review", result.NeedsReview,
		"took", time.Since(start))
	if err == nil && result.Failed+result.NeedsReview > 0 {
		err = fmt.Errorf("abandoned keys not completed: %d will be tried again, %d need review (orders keys list)",
			result.Failed, result.NeedsReview)
	}
	return err
}
