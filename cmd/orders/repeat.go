package main

import (
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/internal/metrics"
)

// interval is the --every flag of the commands that cron starts.
type interval struct{ every time.Duration }

func (i *interval) flag(flags *flag.FlagSet) {
	flags.DurationVar(&i.every, "every", 0, "repeat the run at this interval until a signal arrives, instead of once")
}

// run calls work once and returns its error, or repeats it until ctx ends. An error does
// not end the repetition, because the next run may succeed.
func (i interval) run(ctx context.Context, command string, logger *slog.Logger, work func(context.Context) error) error {
	if i.every == 0 {
		return work(ctx)
	}
	for ctx.Err() == nil {
		if err := work(ctx); err != nil {
			logger.ErrorContext(ctx, "run failed", "command", command, "error", err)
		}
		// Jitter keeps several processes from running at the same moment.
		jitter := time.Duration(rand.Int64N(int64(i.every)/5+1)) - i.every/10 //nolint:gosec // no secret
		timer := time.NewTimer(i.every + jitter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}

// runWithAdmin is run with an admin listener while it repeats. A single run has none,
// because it would end before a scrape.
func (i interval) runWithAdmin(
	ctx context.Context, command string, config boot.OptionalAdmin, m *metrics.Metrics, logger *slog.Logger, work func(context.Context) error,
) error {
	if i.every > 0 {
		stopAdmin, err := startAdmin(ctx, config.AdminAddr, m, nil, logger)
		if err != nil {
			return err
		}
		defer stopAdmin()
	}
	return i.run(ctx, command, logger, work)
}
