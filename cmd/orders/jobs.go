package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/cmd/internal/cli"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/metrics"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/receipts"
)

type completer struct {
	cli.Env[struct {
		setup.App
		setup.OptionalAdmin
		setup.Completer
	}]

	repeating

	Concurrency cli.Count `default:"8" help:"How many keys to resume at the same time."`
}

// repeating is a command that cron runs, or that repeats itself.
type repeating struct {
	Every cli.Interval `placeholder:"DURATION" help:"Repeat the run at this interval until a signal arrives, instead of once."`
}

func (c *completer) Run(ctx context.Context) error {
	config, err := c.Load()
	if err != nil {
		return err
	}
	logger := config.Logger(os.Stderr)
	a, err := app.Open(ctx, config.App, logger)
	if err != nil {
		return err
	}
	defer a.Close()
	pass := a.Completer(config.Completer, int(c.Concurrency))
	return app.RunOrRepeat(ctx, "completer", c.Every.Duration, config.AdminAddr, a.Monitor, a.Metrics, logger, pass)
}

type reaper struct {
	cli.Env[struct {
		setup.Maintenance
		setup.OptionalAdmin
	}]

	repeating

	DryRun bool `help:"Count the keys and delete nothing."`
}

func (c *reaper) Run(ctx context.Context) error {
	config, err := c.Load()
	if err != nil {
		return err
	}
	logger := config.Logger(os.Stderr)
	pool, engine, err := app.OpenEngine(ctx, config.Maintenance, logger)
	if err != nil {
		return err
	}
	defer pool.Close()
	monitor := postgres.NewMonitor(pool, logger)
	m := metrics.New(metrics.Config{Pool: pool, Ready: monitor.Err, Logger: logger, Retention: config.KeyRetention})
	return app.RunOrRepeat(ctx, "reaper", c.Every.Duration, config.AdminAddr, monitor, m, logger, func(ctx context.Context) error {
		if !c.DryRun {
			return app.Reap(ctx, engine, config.KeyRetention, m, logger)
		}
		n, err := engine.CountExpired(ctx, config.KeyRetention)
		return printed(err, "finished keys older than %s: %d; none was deleted\n", config.KeyRetention, n)
	})
}

type worker struct {
	cli.Env[struct {
		setup.DatabaseOnly
		setup.OptionalAdmin
		setup.WorkerMail
	}]

	Once  bool         `help:"Send the receipts that are due, and fail if one could not be sent."`
	Every cli.Interval `default:"1s" help:"How often to poll for new receipts."`
}

func (c *worker) Run(ctx context.Context) error {
	config, err := c.Load()
	if err != nil {
		return err
	}
	logger := config.Logger(os.Stderr)
	pool, err := setup.Pool(ctx, config.Database, logger)
	if err != nil {
		return err
	}
	defer pool.Close()
	monitor := postgres.NewMonitor(pool, logger)
	m := metrics.New(metrics.Config{Pool: pool, Ready: monitor.Err, Logger: logger})
	mail := setup.Mail(config.WorkerMail)
	mailer, err := mail.Mailer(ctx, "", logger)
	if err != nil {
		return err
	}
	w, err := receipts.NewWorker(pool, mailer, receipts.Config{From: mail.Sender(), Observe: m.Receipt}, logger)
	if err != nil {
		return err
	}
	if c.Once {
		result, err := w.RunOnce(ctx)
		retried, failed, lost := result[receipts.Retried], result[receipts.Failed], result[receipts.Lost]
		if err == nil && retried+failed+lost > 0 {
			err = fmt.Errorf("receipts not sent: %d to be retried, %d failed, %d lost", retried, failed, lost)
		}
		return err
	}
	err = app.RunOrRepeat(ctx, "worker", c.Every.Duration, config.AdminAddr, monitor, m, logger, func(ctx context.Context) error {
		_, err := w.RunOnce(ctx)
		return err
	})
	if err == nil {
		logger.Info("stopped")
	}
	return err
}

type jobsList struct {
	onDatabase

	Limit cli.Count `default:"100" help:"How many jobs to list at most."`
}

func (c jobsList) Run(ctx context.Context) error {
	return c.with(ctx, func(pool *pgxpool.Pool) error {
		jobs, err := receipts.ListFailed(ctx, pool, "", int(c.Limit))
		if err != nil {
			return err
		}
		const header = "JOB\tKIND\tACCOUNT\tORDER\tATTEMPTS\tAGE\tFAILED\tLAST ERROR"
		return printTable(header, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s", jobs, func(j receipts.FailedJob) []any {
			return []any{
				j.ID, j.Kind, j.AccountID, cmp.Or(j.OrderID, "-"),
				j.Attempts, j.Age.Round(time.Second), formatTime(j.FailedAt), j.LastError,
			}
		})
	})
}

// maxRetried jobs become due in one run of the command.
const maxRetried = 100_000

type jobsRetry struct {
	onDatabase
	by

	Job    string   `arg:"" help:"The id of a job or of an order, or all."`
	Reason cli.Text `required:"" help:"The reason, for the audit record."`
}

func (c jobsRetry) Run(ctx context.Context) error {
	return c.with(ctx, func(pool *pgxpool.Pool) error {
		name := c.Job
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
			changed, err := receipts.RetryFailed(ctx, pool, j, string(c.By), string(c.Reason))
			if err != nil {
				return err
			}
			if changed {
				retried++
			}
		}
		return printed(nil, "The worker tries again, now: %d\n", retried)
	})
}
