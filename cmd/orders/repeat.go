package main

import (
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"time"

	"example.com/orders-api/cmd/internal/boot"
)

// schedule is the --every flag of the commands that cron starts.
type schedule struct{ every time.Duration }

func (s *schedule) flag(flags *flag.FlagSet, what string) {
	flags.DurationVar(&s.every, "every", 0, "repeat "+what+" about that often, until a signal comes, instead of once")
}

// run makes one pass, whose error is the command's, or repeats it. Repeating
// outlives a pass that fails: whatever was wrong may be right at the next.
func (s schedule) run(ctx context.Context, logger *slog.Logger, pass func(context.Context) error) error {
	if s.every == 0 {
		return pass(ctx)
	}
	for ctx.Err() == nil {
		if err := pass(ctx); err != nil {
			logger.ErrorContext(ctx, "pass ended badly", "error", err)
		}
		// Jitter keeps several processes from knocking at the same moment.
		jitter := time.Duration(rand.Int64N(int64(s.every)/5+1)) - s.every/10 //nolint:gosec // no secret
		pause := time.NewTimer(s.every + jitter)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	return nil
}

// admin is where the command has its admin listener: nowhere when it ends after
// one pass, which would be over before anybody looked.
func (s schedule) admin(config boot.SideAdmin) string {
	if s.every == 0 {
		return ""
	}
	return config.AdminAddr
}

func (s schedule) check(name string) error {
	if s.every < 0 {
		return wrongUsage(name, "--every %s is not a positive duration", s.every)
	}
	return nil
}
