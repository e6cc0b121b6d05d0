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

const (
	completerLimit       = 10_000 // keys in one run
	completerConcurrency = 8      // stays within Stripe's 25 requests per second in test mode
)

func completer(ctx context.Context, call *invocation) error {
	var config struct {
		boot.App
		boot.OptionalAdmin
		boot.Completer
	}
	every := everyFlag(call)
	concurrency := call.flags.Int("concurrency", completerConcurrency, "how many keys to resume at the same time")
	if err := call.load(&config, "concurrency", "every"); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	return withApp(ctx, config.App, logger, func(a *app) error {
		c, err := newCompleter(a, config.Completer, *concurrency)
		if err != nil {
			return err
		}
		return runOrRepeat(ctx, call.name, *every, config.AdminAddr, a.metrics, logger, func(ctx context.Context) error {
			return complete(ctx, c, a.metrics, logger)
		})
	})
}

func newCompleter(a *app, config boot.Completer, concurrency int) (*idempotency.Completer, error) {
	return idempotency.NewCompleter(a.engine, a.orders.Operations(), idempotency.CompleterConfig{
		Grace:         a.config.CompleterGrace,
		MaxAttempts:   config.MaxAttempts,
		ActionTimeout: a.config.ChargeWindow,
		Limit:         completerLimit,
		Concurrency:   concurrency,
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
