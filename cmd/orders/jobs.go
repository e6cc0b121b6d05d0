package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/metrics"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/receipts"
)

const (
	completerLimit       = 10_000 // keys in one run
	completerConcurrency = 8      // stays within Stripe's 25 requests per second in test mode
)

func completer(ctx context.Context, call *invocation) error {
	var config struct {
		setup.App
		setup.OptionalAdmin
		setup.Completer
	}
	every := everyFlag(call)
	concurrency := call.flags.Int("concurrency", completerConcurrency, "how many keys to resume at the same time")
	if err := call.load(&config, "concurrency", "every"); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	a, err := openApp(ctx, config.App, logger)
	if err != nil {
		return err
	}
	defer a.close()
	c, err := newCompleter(a, config.Completer, *concurrency)
	if err != nil {
		return err
	}
	return runOrRepeat(ctx, call.name, *every, config.AdminAddr, a.monitor, a.metrics, logger, func(ctx context.Context) error {
		return complete(ctx, c, a.metrics, logger)
	})
}

func newCompleter(a *app, config setup.Completer, concurrency int) (*idempotency.Completer, error) {
	return idempotency.NewCompleter(a.engine, a.operations.Operations(), idempotency.CompleterConfig{
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
		"requires_action", result.ActionRequired,
		"failed", result.Failed,
		"needs_review", result.NeedsReview,
		"duration_seconds", time.Since(start).Seconds())
	if err == nil && result.Failed+result.NeedsReview > 0 {
		err = fmt.Errorf("abandoned keys not completed: %d will be tried again, %d need review (orders keys list)",
			result.Failed, result.NeedsReview)
	}
	return err
}

// reapBatch keys are deleted in a transaction, in six milliseconds, so orders wait little.
const reapBatch = 50

func reaper(ctx context.Context, call *invocation) error {
	var config struct {
		setup.Maintenance
		setup.OptionalAdmin
	}
	every := everyFlag(call)
	dryRun := call.flags.Bool("dry-run", false, "count the keys and delete nothing")
	if err := call.load(&config, "every"); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	pool, engine, err := openEngine(ctx, config.Maintenance, logger)
	if err != nil {
		return err
	}
	defer pool.Close()
	monitor := postgres.NewMonitor(pool, logger)
	m := metrics.New(metrics.Config{Pool: pool, Ready: monitor.Err, Logger: logger, Jobs: receiptGauges, Retention: config.KeyRetention})
	return runOrRepeat(ctx, call.name, *every, config.AdminAddr, monitor, m, logger, func(ctx context.Context) error {
		if !*dryRun {
			return reap(ctx, engine, config.KeyRetention, m, logger)
		}
		n, err := engine.CountExpired(ctx, config.KeyRetention)
		return call.printResult(err, "finished keys older than %s: %d; none was deleted\n", config.KeyRetention, n)
	})
}

func reap(ctx context.Context, engine *idempotency.Engine, retention time.Duration, m *metrics.Metrics, logger *slog.Logger) error {
	start := time.Now()
	deleted, err := engine.Reap(ctx, retention, reapBatch)
	m.Reaped(deleted, err)
	logger.InfoContext(ctx, "reaper pass", "deleted", deleted, "duration_seconds", time.Since(start).Seconds())
	return err
}

func everyFlag(call *invocation) *time.Duration {
	return call.flags.Duration("every", 0, "repeat the run at this interval until a signal arrives, instead of once")
}

// runOrRepeat calls work once or, with an interval, repeatedly. A single run has no admin
// listener, because it would end before a scrape.
func runOrRepeat(
	ctx context.Context, command string, every time.Duration, adminAddr setup.Address,
	monitor *postgres.Monitor, m *metrics.Metrics, logger *slog.Logger, work func(context.Context) error,
) error {
	if every == 0 {
		return work(ctx)
	}
	stopMonitor, err := monitor.Start(ctx, setup.CheckSchema)
	if err != nil {
		return err
	}
	defer stopMonitor()
	stopAdmin, err := startAdmin(ctx, adminAddr, m, nil, logger)
	if err != nil {
		return err
	}
	defer stopAdmin()
	repeat(ctx, command, every, logger, work)
	return nil
}

// maxErrorPause bounds the pause after an error, unless --every is longer.
const maxErrorPause = time.Minute

// repeat doubles the pause after each error, so that an outage does not fill the log.
func repeat(ctx context.Context, command string, every time.Duration, logger *slog.Logger, work func(context.Context) error) {
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

func worker(ctx context.Context, call *invocation) error {
	var config struct {
		setup.DatabaseOnly
		setup.OptionalAdmin
		setup.WorkerMail
	}
	once := call.flags.Bool("once", false, "send the receipts that are due, and fail if one could not be sent")
	every := call.flags.Duration("every", time.Second, "how often to poll for new receipts")
	if err := call.load(&config, "every"); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	pool, err := setup.Pool(ctx, config.Database, logger)
	if err != nil {
		return err
	}
	defer pool.Close()
	monitor := postgres.NewMonitor(pool, logger)
	m := metrics.New(metrics.Config{Pool: pool, Ready: monitor.Err, Logger: logger, Jobs: receiptGauges})
	mail := setup.Mail(config.WorkerMail)
	mailer, err := mail.Mailer(ctx, "", logger)
	if err != nil {
		return err
	}
	w, err := receipts.NewWorker(pool, mailer, receipts.Config{From: mail.Sender(), Observe: m.Receipt}, logger)
	if err != nil {
		return err
	}
	if *once {
		result, err := w.RunOnce(ctx)
		retried, failed, lost := result[receipts.Retried], result[receipts.Failed], result[receipts.Lost]
		if err == nil && retried+failed+lost > 0 {
			err = fmt.Errorf("receipts not sent: %d to be retried, %d failed, %d lost", retried, failed, lost)
		}
		return err
	}
	err = runOrRepeat(ctx, call.name, *every, config.AdminAddr, monitor, m, logger, func(ctx context.Context) error {
		_, err := w.RunOnce(ctx)
		return err
	})
	if err == nil {
		logger.Info("stopped")
	}
	return err
}

func receiptGauges(ctx context.Context, pool *pgxpool.Pool) ([]metrics.Gauge, error) {
	pending, oldest, failed, err := receipts.ReadStats(ctx, pool)
	return []metrics.Gauge{
		{Name: "receipts_pending", Help: "Receipts that are still to be sent.", Value: float64(pending)},
		{Name: "oldest_receipt_age_seconds", Help: "Age of the oldest pending receipt.", Value: oldest.Seconds()},
		{Name: "receipts_failed", Help: "Receipts that need an operator: they are not tried again.", Value: float64(failed)},
	}, err
}

func jobsList(ctx context.Context, call *invocation) error {
	limit := call.flags.Int("limit", 100, "how many jobs to list at most")
	pool, err := openPool(ctx, call, "limit")
	if err != nil {
		return err
	}
	defer pool.Close()
	jobs, err := receipts.ListFailed(ctx, pool, "", *limit)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(call.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tKIND\tACCOUNT\tORDER\tATTEMPTS\tAGE\tFAILED\tLAST ERROR")
	for _, j := range jobs {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", j.ID, j.Kind, j.AccountID, cmp.Or(j.OrderID, "-"),
			j.Attempts, j.Age.Round(time.Second), formatTime(j.FailedAt), j.LastError)
	}
	return table.Flush()
}

// maxRetried jobs become due in one run of the command.
const maxRetried = 100_000

func jobsRetry(ctx context.Context, call *invocation) error {
	call.argument = "JOB|ORDER|all"
	by, reason := operatorFlags(call)
	pool, err := openPool(ctx, call, "reason", "by")
	if err != nil {
		return err
	}
	defer pool.Close()
	name := call.value
	if name == "all" {
		name = ""
	}
	jobs, err := receipts.ListFailed(ctx, pool, name, maxRetried)
	switch {
	case err != nil:
		return err
	case len(jobs) == 0 && name != "":
		return errors.New("there is no failed job of this id, or of an order with this id (orders jobs list)")
	}
	retried := 0
	for _, j := range jobs {
		changed, err := receipts.RetryFailed(ctx, pool, j, *by, *reason)
		if err != nil {
			return err
		}
		if changed {
			retried++
		}
	}
	return call.printResult(nil, "The worker tries again, now: %d\n", retried)
}
