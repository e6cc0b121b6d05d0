package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/events"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/receipts"
)

// repeating is a command that cron runs, or that repeats itself.
type repeating struct {
	Every app.Interval `placeholder:"DURATION" help:"Repeat the run at this interval until a signal arrives, instead of once."`
}

type completer struct {
	repeating

	Concurrency app.Count `default:"8" help:"How many keys to resume at the same time."`
}

func (*completer) Environment(config *app.Config) []any {
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

func (*reaper) Environment(config *app.Config) []any {
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
	Once  bool         `help:"Make one pass over what is due, and fail if a part could not be done."`
	Every app.Interval `default:"1s" help:"How often to poll for new jobs. The provider's list of events is read each minute."`
}

func (*worker) Environment(config *app.Config) []any {
	return append(config.Operations(), config.Admin.Optional(), &config.Mail)
}

func (c *worker) Run(ctx context.Context, a *app.App) error {
	if err := a.TryProvider(ctx); err != nil {
		return err
	}
	workers := []*jobs.Worker{a.Changes.Worker()}
	if a.Config.SMTPURL != "" {
		mailer, err := a.Config.Mailer(ctx, a.Logger)
		if err != nil {
			return err
		}
		workers = append(workers, receipts.NewWorker(a.Pool, mailer, a.Config.ReceiptsSender(), a.Logger))
	} else {
		a.Logger.WarnContext(ctx, "SMTP_URL is not set, so this worker sends no receipts: they wait for a worker that has it")
	}
	if a.Config.EventsURL != "" {
		workers = append(workers, events.NewWorker(a.Pool, a.Config.Endpoint(), a.Logger))
	} else {
		a.Logger.InfoContext(ctx, "no events are sent, because EVENTS_URL is not set")
	}
	if !c.Once {
		loops := []func(context.Context) error{a.ReadList}
		for _, w := range workers {
			loop := w.Loop()
			defer loop.Wait()
			loops = append(loops, loop.Pass)
		}
		return a.RunOrRepeat(ctx, "worker", c.Every.Duration, loops...)
	}
	err := a.Changes.ReadList(ctx)
	for _, w := range workers {
		result, errPass := w.RunOnce(ctx)
		if retried, failed, lost := result[jobs.Retried]+result[jobs.Misconfigured], result[jobs.Failed], result[jobs.Lost]; retried+failed+lost > 0 {
			errPass = errors.Join(errPass, fmt.Errorf("%ss not done: %d to be retried, %d failed, %d lost", w.Kind, retried, failed, lost))
		}
		err = errors.Join(err, errPass)
	}
	return err
}

type jobsList struct {
	withoutProvider

	Limit app.Count `default:"100" help:"How many jobs to list at most."`
}

func (c jobsList) Run(ctx context.Context, a *app.App) error {
	failed, err := jobs.ListFailed(ctx, a.Pool, int(c.Limit))
	if err != nil {
		return err
	}
	const header = "JOB\tKIND\tACCOUNT\tABOUT\tATTEMPTS\tCREATED\tFAILED\tLAST ERROR"
	return printTable(header, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s", failed, func(j jobs.Job) []any {
		return []any{j.ID, j.Kind, j.AccountID, j.Args, j.Attempt, formatTime(j.CreatedAt), formatTime(*j.FailedAt), j.LastError}
	})
}

// changeOfJob is a command of an operator on failed jobs.
type changeOfJob struct {
	withoutProvider
	by
	Reason app.Text `required:"" help:"The reason, for the audit record."`
}

func (c changeOfJob) operator() audit.Operator {
	return audit.Operator{Actor: string(c.By), Reason: string(c.Reason)}
}

type jobsRetry struct {
	changeOfJob
	Job string `arg:"" help:"The id of a job, or all."`
}

func (c jobsRetry) Run(ctx context.Context, a *app.App) error {
	var id uuid.UUID
	var err error
	if c.Job != "all" {
		id, err = uuid.Parse(c.Job)
	}
	if err != nil || id == uuid.Nil && c.Job != "all" {
		return errNoFailedJob
	}
	retried, err := jobs.RetryFailed(ctx, a.Pool, id, c.operator())
	if err == nil && retried == 0 && c.Job != "all" {
		err = errNoFailedJob
	}
	return printed(err, "The worker tries again, now: %d\n", retried)
}

var errNoFailedJob = errors.New("there is no failed job of this id (orders jobs list), and a discrepancy ends with jobs delete")

type jobsDelete struct {
	changeOfJob
	Job uuid.UUID `arg:"" help:"The id of the job."`
}

func (c jobsDelete) Run(ctx context.Context, a *app.App) error {
	ended, err := jobs.DeleteFailed(ctx, a.Pool, c.Job, c.operator())
	if err == nil && ended == 0 {
		err = errNoFailedJob
	}
	return printed(err, "Job %s is done with, and is not listed any more.\n", c.Job)
}
