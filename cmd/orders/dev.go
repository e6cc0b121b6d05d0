package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/devservices"
	checks "example.com/orders-api/cmd/internal/doctor"
	"example.com/orders-api/receipts"
)

// stripeCheckTimeout bounds the check of the user's key, which delays the start.
const stripeCheckTimeout = 5 * time.Second

type devEnv struct {
	boot.App
	boot.DevListen
	boot.Admin
	boot.Mail
	boot.Completer
}

// dev starts a database and a provider, and writes receipts to files, unless the
// environment names others.
func dev(ctx context.Context, call *invocation) error {
	var config devEnv
	// slim:begin
	latency := latencyFlag(call)
	// slim:end
	reset := call.flags.Bool("reset", false, "delete the private database and the state of the stand-in for Stripe first")
	if err := call.parse(&config); err != nil {
		return err
	}
	if err := boot.LoadDev(&config); err != nil {
		return err
	}
	if *reset && config.URL != "" {
		return wrongUsage(call.name, "--reset deletes the private database only, and DATABASE_URL names another one")
	}
	fmt.Fprintln(call.stdout, "orders dev: API, worker, completer and reaper in one process; Ctrl-C ends it and keeps the data")
	folder, err := devservices.Folder(config.Stripe)
	if err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	services, err := devservices.Start(ctx, &config.Database, &config.Stripe, devservices.Options{
		DataDir: folder,
		Reset:   *reset,
		Logger:  logger,
		Notice:  func(line string) { fmt.Fprintln(call.stdout, line) },
	})
	if err != nil {
		return err
	}
	if *reset {
		fmt.Fprintf(call.stdout, "Deleted the database and the state of the stand-in in %s\n", folder)
	}
	d := devRun{config: config, services: services, folder: folder, logger: logger, stdout: call.stdout}
	// slim:begin
	d.latency = *latency
	// slim:end
	return errors.Join(d.run(ctx), services.Stop())
}

// devRun is a run of dev after its services have started.
type devRun struct {
	config   devEnv
	services *devservices.Services
	folder   string // of the API key and the receipts
	logger   *slog.Logger
	stdout   io.Writer
	// slim:begin
	latency time.Duration // of the console
	// slim:end
}

func (d devRun) run(ctx context.Context) error {
	if err := boot.Migrate(ctx, d.config.Database); err != nil {
		return err
	}
	return withApp(ctx, d.config.App, d.logger, func(a *app) error {
		return withServer(ctx, a, d.config.Addr, d.config.AdminAddr, func(s *server) error { return d.serve(ctx, s) })
	})
}

func (d devRun) serve(ctx context.Context, s *server) error {
	key, err := devservices.APIKey(ctx, s.pool, filepath.Join(d.folder, "api-keys"))
	if err != nil {
		return err
	}
	mailer, err := d.config.Mailer(filepath.Join(d.folder, "receipts"), d.logger)
	if err != nil {
		return err
	}
	base := devservices.BaseURL(s.listener.Addr())
	welcome := devservices.Welcome{Services: d.services, Stripe: d.config.Stripe, BaseURL: base, DocsURL: base + "/docs", APIKey: key}
	if d.services.Stripe == nil {
		// A wrong key does not prevent the start, and neither does a missing network.
		result := checks.Stripe(ctx, d.config.Stripe, stripeCheckTimeout)
		welcome.Checked = printable(result.Mark + " " + result.Message)
	}
	group, ctx := errgroup.WithContext(ctx)
	// slim:begin
	console, err := addConsole(ctx, group, d, s, base, key, mailer)
	if err != nil {
		return err
	}
	mailer, welcome.DocsURL, welcome.ConsoleURL = console.Mailbox(), console.DocsURL(), console.URL()
	// slim:end
	welcome.Print(d.stdout) // before the first request, whose log line would interrupt it
	group.Go(func() error { return s.run(ctx, 0) })
	if err := d.startJobs(ctx, group, s.app, mailer, base); err != nil {
		return err
	}
	return group.Wait()
}

// startJobs starts everything except the API.
func (d devRun) startJobs(ctx context.Context, group *errgroup.Group, a *app, mailer receipts.Mailer, base string) error {
	worker, err := newWorker(mailer, d.config.Sender(), a.pool, a.metrics, d.logger)
	if err != nil {
		return err
	}
	completer, err := newCompleter(a, d.config.Completer, completerConcurrency)
	if err != nil {
		return err
	}
	reaper, err := newReaper(a.engine, d.config.KeyRetention)
	if err != nil {
		return err
	}
	group.Go(func() error {
		repeat(ctx, "worker", time.Second, d.logger, func(ctx context.Context) error {
			_, err := worker.RunOnce(ctx)
			return err
		})
		return nil
	})
	group.Go(func() error {
		repeat(ctx, "completer", time.Minute, d.logger, func(ctx context.Context) error { return complete(ctx, completer, a.metrics, d.logger) })
		return nil
	})
	group.Go(func() error {
		repeat(ctx, "reaper", 10*time.Minute, d.logger, func(ctx context.Context) error { return reap(ctx, reaper, a.metrics, d.logger) })
		return nil
	})
	group.Go(func() error {
		d.services.DeliverEvents(ctx, base+"/v1/webhooks/stripe", d.logger)
		return nil
	})
	group.Go(func() error { return d.services.Watch(ctx) })
	return nil
}
