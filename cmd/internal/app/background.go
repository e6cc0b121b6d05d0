package app

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"example.com/orders-api/idempotency"
)

// CompleterConcurrency stays within Stripe's 25 requests per second in test mode.
const CompleterConcurrency = 8

// Completer returns a function that makes one pass over the abandoned keys.
func (a *App) Completer(concurrency int) func(context.Context) error {
	c := idempotency.NewCompleter(a.Engine, idempotency.CompleterConfig{
		Grace:         a.Config.CompleterGrace,
		ActionTimeout: a.Config.ChargeWindow,
		Batch:         10 * concurrency,
		Concurrency:   concurrency,
	})
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { a.Logger.InfoContext(ctx, "stopping after the keys in progress") })
		defer stop()
		start := time.Now()
		result, err := c.RunOnce(ctx)
		a.Metrics.Maintained("completer", err)
		a.Logger.InfoContext(ctx, "completer pass",
			"completed", result.Completed,
			"skipped", result.Skipped,
			"requires_action", result.ActionRequired,
			"failed", result.Failed,
			"duration_seconds", time.Since(start).Seconds())
		if err == nil && result.Failed > 0 {
			err = fmt.Errorf("abandoned keys not completed: %d, which will be tried again (orders keys list)", result.Failed)
		}
		return err
	}
}

// ReadList reads the provider's list of events each minute, until ctx ends.
func (a *App) ReadList(ctx context.Context) error {
	Repeat(ctx, "worker", time.Minute, a.Logger, a.Changes.ReadList)
	return nil
}

// reapBatch is how many keys one transaction empties. It takes six milliseconds, so orders hardly
// wait for it.
const reapBatch = 50

// Reap empties the finished keys whose retention is over.
func (a *App) Reap(ctx context.Context) error {
	start := time.Now()
	emptied, err := a.Engine.Reap(ctx, a.Config.KeyRetention, reapBatch)
	a.Metrics.Maintained("reaper", err)
	a.Logger.InfoContext(ctx, "reaper pass", "emptied", emptied, "duration_seconds", time.Since(start).Seconds())
	return err
}

// RunOrRepeat calls works once or, with an interval, repeatedly and each by itself, so that none waits for
// another. A single run has no admin listener, because it would end before a scrape.
func (a *App) RunOrRepeat(ctx context.Context, command string, every time.Duration, works ...func(context.Context) error) error {
	if every == 0 {
		return works[0](ctx)
	}
	WarnOfSettings(ctx, a.Pool, a.Logger)
	if err := a.StartMonitor(ctx, CheckSchema); err != nil {
		return err
	}
	if err := a.startAdmin(ctx, nil); err != nil {
		return err
	}
	var loops sync.WaitGroup
	for _, work := range works {
		loops.Go(func() { Repeat(ctx, command, every, a.Logger, work) })
	}
	<-ctx.Done() // a worker may have nothing to do
	loops.Wait()
	return nil
}

// maxErrorPause bounds the pause after an error, unless --every is longer.
const maxErrorPause = time.Minute

// Repeat calls work until ctx ends. It doubles the pause after each error, so that an outage does
// not fill the log.
func Repeat(ctx context.Context, command string, every time.Duration, logger *slog.Logger, work func(context.Context) error) {
	pause := every
	for ctx.Err() == nil {
		if err := work(ctx); err != nil {
			pause = max(every, min(2*pause, maxErrorPause))
			logger.ErrorContext(ctx, "run failed", "command", command, "error", err, "pause_seconds", pause.Seconds())
		} else {
			pause = every
		}
		// Jitter keeps several processes from running at the same moment.
		jitter := time.Duration(rand.Int64N(int64(pause)/5+1)) - pause/10 //nolint:gosec // no secret
		select {
		case <-time.After(pause + jitter):
		case <-ctx.Done():
		}
	}
}
