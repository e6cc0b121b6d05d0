package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"example.com/orders-api/idempotency"
)

// completerConcurrency stays within Stripe's 25 requests per second in test mode.
const completerConcurrency = 8

// Complete makes one pass over the abandoned keys.
func (a *App) Complete(ctx context.Context) error {
	c := idempotency.NewCompleter(a.Engine, idempotency.CompleterConfig{
		Grace:         a.Config.CompleterGrace,
		ActionTimeout: a.Config.ChargeWindow,
		Batch:         10 * completerConcurrency,
		Concurrency:   completerConcurrency,
	})
	result, err := c.RunOnce(ctx)
	a.Metrics.Maintained("completer", err)
	a.Logger.InfoContext(ctx, "completer pass",
		"completed", result.Completed,
		"skipped", result.Skipped,
		"requires_action", result.ActionRequired,
		"failed", result.Failed)
	if err == nil && result.Failed > 0 {
		err = fmt.Errorf("abandoned keys not completed: %d, which will be tried again (orders keys list)", result.Failed)
	}
	return err
}

// reapBatch is how many keys one transaction empties. It takes six milliseconds, so orders hardly
// wait for it.
const reapBatch = 50

// Reap empties the finished keys whose retention is over.
func (a *App) Reap(ctx context.Context) error {
	emptied, err := a.Engine.Reap(ctx, a.Config.KeyRetention, reapBatch)
	a.Metrics.Maintained("reaper", err)
	a.Logger.InfoContext(ctx, "reaper pass", "emptied", emptied)
	return err
}

// Loop is work that a command repeats.
type Loop struct {
	Command string
	Every   time.Duration
	Work    func(context.Context) error
}

// Repeat runs loops until ctx ends, each by itself, so that none waits for another. It has an admin
// listener only if a variable names its address, because the default is that of the API on the same machine.
func (a *App) Repeat(ctx context.Context, loops ...Loop) error {
	WarnOfSettings(ctx, a.Pool, a.Logger)
	if err := a.StartMonitor(ctx); err != nil {
		return err
	}
	if os.Getenv("ADMIN_ADDR") != "" {
		if err := a.startAdmin(ctx, a.Monitor.Err); err != nil {
			return err
		}
	}
	var running sync.WaitGroup
	for _, loop := range loops {
		running.Go(func() { loop.Run(ctx, a.Logger) })
	}
	running.Wait()
	return nil
}

// errorPause is the pause after an error, unless Every is longer, so that an outage does not fill the log.
const errorPause = 10 * time.Second

// Run repeats the work until ctx ends.
func (l Loop) Run(ctx context.Context, logger *slog.Logger) {
	for ctx.Err() == nil {
		pause := l.Every
		if err := l.Work(ctx); err != nil {
			pause = max(l.Every, errorPause)
			logger.ErrorContext(ctx, "run failed", "command", l.Command, "error", err, "pause_seconds", pause.Seconds())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
