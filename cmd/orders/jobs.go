package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/cmd/internal/cli"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/events"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/receipts"
)

// repeating is a command that cron runs, or that repeats itself.
type repeating struct {
	Every cli.Interval `placeholder:"DURATION" help:"Repeat the run at this interval until a signal arrives, instead of once."`
}

type completer struct {
	repeating

	Concurrency cli.Count `default:"8" help:"How many keys to resume at the same time."`
}

func (*completer) Environment(config *setup.Config) []any {
	return append(config.Operations(), config.Admin.Optional())
}

func (c *completer) Run(ctx context.Context, a *app.App) error {
	if err := a.TryProvider(ctx); err != nil {
		return err
	}
	return a.RunOrRepeat(ctx, "completer", c.Every.Duration, a.Completer(int(c.Concurrency)))
}

type reaper struct {
	repeating

	DryRun bool `help:"Count the keys and delete nothing."`
}

func (*reaper) Environment(config *setup.Config) []any {
	return append(config.Keys(), config.Admin.Optional())
}

func (c *reaper) Run(ctx context.Context, a *app.App) error {
	return a.RunOrRepeat(ctx, "reaper", c.Every.Duration, func(ctx context.Context) error {
		if !c.DryRun {
			return a.Reap(ctx)
		}
		retention := a.Config.KeyRetention
		n, err := a.Engine.CountReapable(ctx, retention)
		return printed(err, "finished keys older than %s: %d; none was emptied\n", retention, n)
	})
}

type worker struct {
	Once  bool         `help:"Send the receipts and events that are due, and fail if one could not be sent."`
	Every cli.Interval `default:"1s" help:"How often to poll for new receipts and events."`
}

func (*worker) Environment(config *setup.Config) []any {
	return append(config.Keys(), config.Admin.Optional(), &config.Mail, &config.Events)
}

func (c *worker) Run(ctx context.Context, a *app.App) error {
	var workers []*jobs.Worker
	var err error
	if a.Config.SMTPURL != "" {
		mailer, err := a.Config.Mailer(ctx, a.Logger)
		if err != nil {
			return err
		}
		workers = append(workers, receipts.NewWorker(a.Pool, mailer, a.Config.ReceiptsSender(), a.Logger))
	} else {
		a.Logger.WarnContext(ctx, "SMTP_URL is not set, so this worker sends no receipts: they wait for a worker that has it")
	}
	if keys := a.Config.EventKeys(); len(keys) > 0 {
		workers = append(workers, events.NewWorkers(a.Pool, keys, a.Logger)...)
	} else if n, err := events.CountEndpoints(ctx, a.Pool); n > 0 || err != nil {
		a.Logger.WarnContext(ctx, "EVENTS_SIGNING_KEY is not set, so this worker sends no events to the shops' endpoints: they wait for a worker that has the key",
			"endpoints", n, "error", err)
	}
	if !c.Once {
		var loops []func(context.Context) error
		for _, w := range workers {
			loops = append(loops, w.Pass)
		}
		return a.RunOrRepeat(ctx, "worker", c.Every.Duration, loops...)
	}
	for _, w := range workers {
		result, errPass := w.RunOnce(ctx)
		if retried, failed, lost := result[jobs.Retried], result[jobs.Failed], result[jobs.Lost]; retried+failed+lost > 0 {
			errPass = errors.Join(errPass, fmt.Errorf("%ss not sent: %d to be retried, %d failed, %d lost", w.Kind, retried, failed, lost))
		}
		err = errors.Join(err, errPass)
	}
	return err
}

type jobsList struct {
	withoutProvider

	Limit cli.Count `default:"100" help:"How many jobs to list at most."`
}

func (c jobsList) Run(ctx context.Context, a *app.App) error {
	failed, err := jobs.ListFailed(ctx, a.Pool, "", int(c.Limit))
	if err != nil {
		return err
	}
	const header = "JOB\tKIND\tACCOUNT\tORDER\tATTEMPTS\tAGE\tFAILED\tLAST ERROR"
	return printTable(header, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s", failed, func(j jobs.FailedJob) []any {
		return []any{
			j.ID, j.Kind, j.AccountID, cmp.Or(j.OrderID, "-"),
			j.Attempts, j.Age.Round(time.Second), formatTime(*j.FailedAt), j.LastError,
		}
	})
}

// maxRetried jobs become due in one run of the command.
const maxRetried = 100_000

type jobsRetry struct {
	withoutProvider
	by

	Job    string   `arg:"" help:"The id of a job, of an endpoint or of an order, or all."`
	Reason cli.Text `required:"" help:"The reason, for the audit record."`
}

func (c jobsRetry) Run(ctx context.Context, a *app.App) error {
	name := c.Job
	if name == "all" {
		name = ""
	}
	failed, err := jobs.ListFailed(ctx, a.Pool, name, maxRetried)
	switch {
	case err != nil:
		return err
	case len(failed) == 0 && name != "":
		return errors.New("there is no failed job or disabled endpoint of this id, and no failed job of an order with this id (orders jobs list)")
	}
	retried := 0
	for _, j := range failed {
		changed, err := jobs.RetryFailed(ctx, a.Pool, j, string(c.By), string(c.Reason))
		if err != nil {
			return err
		}
		if changed {
			retried++
		}
	}
	return printed(nil, "The worker tries again, now: %d\n", retried)
}

type jobsDelete struct {
	withoutProvider
	by

	Job    uuid.UUID `arg:"" help:"The id of the job."`
	Reason cli.Text  `required:"" help:"The reason, for the audit record."`
}

func (c jobsDelete) Run(ctx context.Context, a *app.App) error {
	failed, err := jobs.ListFailed(ctx, a.Pool, c.Job.String(), maxRetried)
	deleted := false
	for _, j := range failed {
		if err == nil && j.ID == c.Job {
			deleted, err = jobs.DeleteFailed(ctx, a.Pool, j, string(c.By), string(c.Reason))
		}
	}
	if err == nil && !deleted {
		err = errors.New("there is no failed job of this id (orders jobs list)")
	}
	return printed(err, "Job %s is deleted.\n", c.Job)
}
