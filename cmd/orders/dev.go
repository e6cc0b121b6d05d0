package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/orders-api/cmd/internal/demo"
	"example.com/orders-api/cmd/internal/devservices"
	checks "example.com/orders-api/cmd/internal/doctor"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/receipts"
)

const (
	// stripeCheckTimeout bounds the check of the user's key, which delays the start.
	stripeCheckTimeout = 5 * time.Second

	defaultLatency = 700 * time.Millisecond
)

type devEnv struct {
	setup.App
	setup.DevListen
	setup.Admin
	setup.Mail
	setup.Completer
}

func dev(ctx context.Context, call *invocation) (err error) {
	var config devEnv
	latency := call.flags.Duration("provider-latency", defaultLatency,
		"how much latency the console adds to each call to the provider,\nso that you see a row at each recovery point")
	reset := call.flags.Bool("reset", false, "delete the private database and the state of the fake Stripe first")
	if err := call.parse(&config); err != nil {
		return err
	}
	if err := setup.LoadDev(&config); err != nil {
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
	services, err := devservices.Start(ctx, &config.Database, &config.Stripe, embeddedpg.Options{
		DataDir: folder,
		Reset:   *reset,
		Logger:  logger,
		Notice:  func(line string) { fmt.Fprintln(call.stdout, line) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, services.Stop()) }()
	if *reset {
		fmt.Fprintf(call.stdout, "Deleted the database and the state of the fake Stripe in %s\n", folder)
	}
	return devRun{config, services, folder, logger, call.stdout, *latency}.run(ctx)
}

// devRun is a run of dev after its services have started.
type devRun struct {
	config   devEnv
	services *devservices.Services
	folder   string
	logger   *slog.Logger
	stdout   io.Writer
	latency  time.Duration
}

func (d devRun) run(ctx context.Context) error {
	if err := setup.Migrate(ctx, d.config.Database); err != nil {
		return err
	}
	a, err := openApp(ctx, d.config.App, d.logger)
	if err != nil {
		return err
	}
	defer a.close()
	s, err := openServer(ctx, a, d.config.Addr, d.config.AdminAddr)
	if err != nil {
		return err
	}
	account, key, err := devservices.APIKey(ctx, a.pool, filepath.Join(d.folder, "api-keys"))
	if err != nil {
		return err
	}
	mailer, err := d.config.Mailer(filepath.Join(d.folder, "receipts"), d.logger)
	if err != nil {
		return err
	}
	base := baseURL(s.listener.Addr().String(), "localhost")
	console, err := demo.NewConsole(ctx, demo.Options{
		Env:     demo.Env{Database: d.config.Database, Stripe: d.config.Stripe},
		Fake:    d.services.Stripe,
		Pool:    a.pool,
		Account: account,
		APIKey:  key,
		LogFile: filepath.Join(d.folder, "console.log"),
		Mailer:  mailer,
		BaseURL: base,
		Latency: max(d.latency, 0),
	}, d.logger)
	if err != nil {
		return err
	}
	s.http.Handler = console.Mount(s.http.Handler)
	d.welcome(ctx, console, base, key) // before the first request, whose log line would interrupt it
	group, ctx := errgroup.WithContext(ctx)
	s.http.Handler = d.withShop(ctx, group, s, base, key)
	if err := d.startJobs(ctx, group, a, console); err != nil {
		return err
	}
	group.Go(func() error { return console.Run(ctx) })
	group.Go(func() error { return s.run(ctx, 0) })
	group.Go(func() error { return d.services.Watch(ctx) })
	group.Go(func() error {
		d.services.DeliverEvents(ctx, base+"/v1/webhooks/stripe", d.logger)
		return nil
	})
	return group.Wait()
}

// welcome prints at once, so that no log line interrupts the text. The curl line has an
// idempotency key that is new after each start, so that the user sees a first response and a
// replay.
func (d devRun) welcome(ctx context.Context, console *demo.Console, base, key string) {
	var text strings.Builder
	line := func(name, value string) { fmt.Fprintf(&text, "%-12s %s\n", name, value) }
	text.WriteString("\n")
	line("Orders API", base+"   contract: "+console.DocsURL())
	line("Console", console.URL()+"   cause a failure, and see the recovery")
	if d.services.Postgres != nil {
		line("PostgreSQL", "psql '"+d.services.Postgres.URL("postgres")+"'")
	}
	switch {
	case d.services.SendsEvents():
		line("Stripe", "a fake that sends webhooks; its charges: "+d.config.APIBase)
	case d.services.Stripe != nil:
		line("Stripe", "a fake; its charges: "+d.config.APIBase)
	default: // a wrong key does not prevent the start, and neither does a missing network
		result := checks.Stripe(ctx, d.config.Stripe, stripeCheckTimeout)
		line("Stripe", printable(result.Mark+" "+result.Message))
		if d.config.WebhookSecret == "" {
			line("Webhooks", "off; set STRIPE_WEBHOOK_SECRET to the secret that this command prints:")
			line("", "stripe listen --forward-to "+base+"/v1/webhooks/stripe")
		}
	}
	if d.services.DataDir != "" {
		line("Data", d.services.DataDir+"   orders dev --reset deletes it")
	}
	line("API key", key)
	fmt.Fprintf(&text, `
Create an order:

  curl -i %s/v1/orders -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' -H 'Idempotency-Key: my-order-%s' \
    -d '{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",
         "items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}'

Send the same line again: the same bytes come back, and nothing is charged twice.

`, base, key, time.Now().Format("20060102-150405"))
	fmt.Fprint(d.stdout, text.String())
}

func (d devRun) startJobs(ctx context.Context, group *errgroup.Group, a *app, mailer receipts.Mailer) error {
	worker, err := receipts.NewWorker(a.pool, mailer, receipts.Config{From: d.config.Sender(), Observe: a.metrics.Receipt}, d.logger)
	if err != nil {
		return err
	}
	completer, err := newCompleter(a, d.config.Completer, completerConcurrency)
	if err != nil {
		return err
	}
	start := func(name string, every time.Duration, work func(context.Context) error) {
		group.Go(func() error {
			repeat(ctx, name, every, d.logger, work)
			return nil
		})
	}
	start("worker", time.Second, func(ctx context.Context) error {
		_, err := worker.RunOnce(ctx)
		return err
	})
	start("completer", time.Minute, func(ctx context.Context) error { return complete(ctx, completer, a.metrics, d.logger) })
	start("reaper", 10*time.Minute, func(ctx context.Context) error {
		return reap(ctx, a.engine, d.config.KeyRetention, a.metrics, d.logger)
	})
	return nil
}
