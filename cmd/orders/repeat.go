package main

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/internal/metrics"
)

// everyFlag defines the flag of the commands that cron starts.
func everyFlag(call *invocation) *time.Duration {
	return call.flags.Duration("every", 0, "repeat the run at this interval until a signal arrives, instead of once")
}

// runOrRepeat calls work once and returns its error. If the interval is set, it repeats
// work, with an admin listener. A single run has none, because it would end before a scrape.
func runOrRepeat(
	ctx context.Context, command string, every time.Duration, adminAddr boot.Address, m *metrics.Metrics, logger *slog.Logger,
	work func(context.Context) error,
) error {
	if every == 0 {
		return work(ctx)
	}
	stopAdmin, err := startAdmin(ctx, adminAddr, m, nil, logger)
	if err != nil {
		return err
	}
	defer stopAdmin()
	repeat(ctx, command, every, logger, work)
	return nil
}

// repeat calls work until ctx ends. An error does not end the repetition, because the next
// run may succeed.
func repeat(ctx context.Context, command string, every time.Duration, logger *slog.Logger, work func(context.Context) error) {
	for ctx.Err() == nil {
		if err := work(ctx); err != nil {
			logger.ErrorContext(ctx, "run failed", "command", command, "error", err)
		}
		// Jitter keeps several processes from running at the same moment.
		jitter := time.Duration(rand.Int64N(int64(every)/5+1)) - every/10 //nolint:gosec // no secret
		select {
		case <-time.After(every + jitter):
		case <-ctx.Done():
		}
	}
}
