package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/cmd/internal/devservices"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/receipts"
)

// extensions add to dev what is not the API. To delete one, delete its line and its files.
func extensions() []extension {
	return []extension{
		consoleExtension,
		shopExtension,
	}
}

// An extension defines its flags, and returns a function that adds it to the server.
type extension func(*flag.FlagSet) func(context.Context, *devServer) error

func extend(flags *flag.FlagSet) (add []func(context.Context, *devServer) error) {
	for _, e := range extensions() {
		add = append(add, e(flags))
	}
	return add
}

type devEnv struct {
	setup.App
	setup.DevListen
	setup.Admin
	setup.Mail
	setup.Completer
}

func dev(ctx context.Context, call *invocation) (err error) {
	var config devEnv
	add := extend(call.flags)
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
	return devRun{config, services, folder, logger, call.stdout, add}.run(ctx)
}

// devRun is a run of dev after its services have started.
type devRun struct {
	config   devEnv
	services *devservices.Services
	folder   string
	logger   *slog.Logger
	stdout   io.Writer
	add      []func(context.Context, *devServer) error
}

// devServer is the server of dev, which the extensions change before it starts.
type devServer struct {
	*server

	devRun
	base    string // URL of the API
	docs    string // URL of the contract's page
	account uuid.UUID
	apiKey  string
	mailer  receipts.Mailer
	welcome strings.Builder
	jobs    []func(context.Context) error // end with ctx
}

// line adds a line to the welcome.
func (s *devServer) line(name, value string) { fmt.Fprintf(&s.welcome, "%-12s %s\n", name, value) }

func (d devRun) run(ctx context.Context) error {
	if err := devservices.Migrate(ctx, d.config.Database); err != nil {
		return err
	}
	a, err := newApp(ctx, d.config.App, d.logger)
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
	mailer, err := d.config.Mailer(ctx, filepath.Join(d.folder, "receipts"), d.logger)
	if err != nil {
		return err
	}
	base := baseURL(s.listener.Addr().String(), "localhost")
	dev := &devServer{server: s, devRun: d, base: base, docs: base + "/docs", account: account, apiKey: key, mailer: mailer}
	for _, add := range d.add {
		if err := add(ctx, dev); err != nil {
			return err
		}
	}
	dev.print() // before the first request, whose log line would interrupt it
	group, ctx := errgroup.WithContext(ctx)
	if err := dev.startJobs(ctx, group); err != nil {
		return err
	}
	for _, job := range dev.jobs {
		group.Go(func() error { return job(ctx) })
	}
	group.Go(func() error { return s.run(ctx, 0) })
	group.Go(func() error { return d.services.Watch(ctx) })
	group.Go(func() error {
		d.services.DeliverEvents(ctx, base+"/v1/webhooks/stripe", d.logger)
		return nil
	})
	return group.Wait()
}

// print prints at once, so that no log line interrupts the text. The curl line has an
// idempotency key that is new after each start, so that the user sees a first response and a
// replay.
func (s *devServer) print() {
	extended := s.welcome.String()
	s.welcome.Reset()
	s.welcome.WriteString("\n")
	s.line("Orders API", s.base+"   contract: "+s.docs)
	s.welcome.WriteString(extended)
	if s.services.Postgres != nil {
		s.line("PostgreSQL", "psql '"+s.services.Postgres.URL("postgres")+"'")
	}
	stripe := s.config.Stripe
	switch {
	case s.services.SendsEvents():
		s.line("Stripe", "a fake that sends webhooks; its charges: "+stripe.APIBase)
	case s.services.Stripe != nil:
		s.line("Stripe", "a fake; its charges: "+stripe.APIBase)
	default:
		s.line("Stripe", stripe.ProviderURL()+" (mode: "+stripe.Mode()+")")
		if stripe.WebhookSecret == "" {
			s.line("Webhooks", "off; set STRIPE_WEBHOOK_SECRET to the secret that this command prints:")
			s.line("", "stripe listen --forward-to "+s.base+"/v1/webhooks/stripe")
		}
	}
	if s.services.DataDir != "" {
		s.line("Data", s.services.DataDir+"   orders dev --reset deletes it")
	}
	s.line("API key", s.apiKey)
	fmt.Fprintf(s.stdout, `%s
Create an order:

  curl -i %s/v1/orders -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' -H 'Idempotency-Key: my-order-%s' \
    -d '{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",
         "items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}'

Send the same line again: the same bytes come back, and nothing is charged twice.

`, &s.welcome, s.base, s.apiKey, time.Now().Format("20060102-150405"))
}

func (s *devServer) startJobs(ctx context.Context, group *errgroup.Group) error {
	config, logger := s.config, s.logger
	worker, err := receipts.NewWorker(s.pool, s.mailer, receipts.Config{From: config.Sender(), Observe: s.metrics.Receipt}, logger)
	if err != nil {
		return err
	}
	completer, err := newCompleter(s.app, config.Completer, completerConcurrency)
	if err != nil {
		return err
	}
	start := func(name string, every time.Duration, work func(context.Context) error) {
		group.Go(func() error {
			repeat(ctx, name, every, logger, work)
			return nil
		})
	}
	start("worker", time.Second, func(ctx context.Context) error {
		_, err := worker.RunOnce(ctx)
		return err
	})
	start("completer", time.Minute, func(ctx context.Context) error { return complete(ctx, completer, s.metrics, logger) })
	start("reaper", 10*time.Minute, func(ctx context.Context) error {
		return reap(ctx, s.engine, config.KeyRetention, s.metrics, logger)
	})
	return nil
}
