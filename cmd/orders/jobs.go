package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/events"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/receipts"
)

// repeating is a command that cron runs, or that repeats itself.
type repeating struct {
	Every time.Duration `placeholder:"DURATION" help:"Repeat the run at this interval until a signal arrives, instead of once."`
}

func (c repeating) run(ctx context.Context, a *app.App, command string, work func(context.Context) error) error {
	if c.Every == 0 {
		return work(ctx)
	}
	return a.Repeat(ctx, app.Loop{Command: command, Every: c.Every, Work: work})
}

type completer struct{ repeating }

func (c completer) Run(ctx context.Context, a *app.App) error {
	if err := a.TryProvider(ctx); err != nil {
		return err
	}
	return c.run(ctx, a, "completer", a.Complete)
}

type reaper struct {
	repeating

	DryRun bool `help:"Count the keys and empty none."`
}

func (c reaper) Run(ctx context.Context, a *app.App) error {
	if !c.DryRun {
		return c.run(ctx, a, "reaper", a.Reap)
	}
	retention := a.Config.KeyRetention
	n, err := a.Engine.CountReapable(ctx, retention)
	return printed(err, "finished keys older than %s: %d; none was emptied\n", retention, n)
}

type worker struct {
	Once  bool          `help:"Make one pass over what is due, and fail if a part could not be done."`
	Every time.Duration `default:"1s" help:"How often to poll for new jobs. The provider's list of events is read each minute."`
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
		workers = append(workers, receipts.NewWorker(a.Pool, a.Orders.Receipt, mailer, a.Config.ReceiptsFrom, a.Logger))
	} else {
		a.Logger.WarnContext(ctx, "SMTP_URL is not set, so this worker sends no receipts: they wait for a worker that has it")
	}
	if a.Config.EventsURL != "" {
		workers = append(workers, events.NewWorker(a.Pool, a.Config.Endpoint(), a.Logger))
	}
	if !c.Once {
		loops := []app.Loop{{Command: "worker", Every: time.Minute, Work: a.Changes.ReadList}}
		for _, w := range workers {
			loop := w.Loop()
			defer loop.Wait()
			loops = append(loops, app.Loop{Command: "worker", Every: c.Every, Work: loop.Pass})
		}
		return a.Repeat(ctx, loops...)
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

type jobsList struct{}

func (jobsList) Run(ctx context.Context, a *app.App) error {
	failed, err := jobs.ListFailed(ctx, a.Pool)
	if err != nil {
		return err
	}
	return show(os.Stdout, "jobs", failed)
}

type jobsRetry struct {
	operator
	Job string `arg:"" help:"The id of a job, or all."`
}

func (c jobsRetry) Run(ctx context.Context, a *app.App) error {
	id, err := uuid.Parse(c.Job) // the zero id means all
	if c.Job != "all" && (err != nil || id == uuid.Nil) {
		return errNoFailedJob
	}
	retried, err := jobs.RetryFailed(ctx, a.Pool, id, c.audit())
	if err == nil && retried == 0 && c.Job != "all" {
		err = errNoFailedJob
	}
	return printed(err, "The worker tries again, now: %d\n", retried)
}

var errNoFailedJob = errors.New("there is no failed job of this id (orders jobs list), and a discrepancy ends with jobs delete")

type jobsDelete struct {
	operator
	Job uuid.UUID `arg:"" help:"The id of the job."`
}

func (c jobsDelete) Run(ctx context.Context, a *app.App) error {
	ended, err := jobs.DeleteFailed(ctx, a.Pool, c.Job, c.audit())
	if err == nil && ended == 0 {
		err = errNoFailedJob
	}
	return printed(err, "Job %s is done with, and is not listed any more.\n", c.Job)
}
