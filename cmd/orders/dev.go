package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/devservices"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/receipts"
)

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
	docsURL  string

	// sendsEvents is set if the stand-in sends webhooks. With a secret of the user's own,
	// the user sends them.
	sendsEvents bool
	// slim:begin
	latency    time.Duration // of the console
	consoleURL string
	// slim:end
}

func (d devRun) run(ctx context.Context) error {
	if err := boot.Migrate(ctx, d.config.Database); err != nil {
		return err
	}
	if d.services.Stripe != nil && d.config.WebhookSecret == "" {
		d.sendsEvents = true
		d.config.WebhookSecret = devservices.NewWebhookSecret()
	}
	return withApp(ctx, d.config.App, d.logger, func(a *app) error {
		return withServer(ctx, a, d.config.Addr, d.config.AdminAddr, func(s *server) error { return d.serve(ctx, s) })
	})
}

func (d devRun) serve(ctx context.Context, s *server) error {
	key, err := devKey(ctx, s.pool, filepath.Join(d.folder, "api-keys"))
	if err != nil {
		return err
	}
	mailer, err := d.config.Mailer(filepath.Join(d.folder, "receipts"), d.logger)
	if err != nil {
		return err
	}
	base := baseURL(s.listener.Addr())
	group, ctx := errgroup.WithContext(ctx)
	d.docsURL = base + "/docs"
	// slim:begin
	console, err := addConsole(ctx, group, d, s, base, key, mailer)
	if err != nil {
		return err
	}
	mailer, d.docsURL, d.consoleURL = console.Mailbox(), console.DocsURL(), console.URL()
	// slim:end
	d.printWelcome(base, key) // before the first request, whose log line would interrupt it
	group.Go(func() error { return s.run(ctx, 0) })
	if err := d.startJobs(ctx, group, s.app, mailer, base); err != nil {
		return err
	}
	return group.Wait()
}

// startJobs starts everything except the API.
func (d devRun) startJobs(ctx context.Context, group *errgroup.Group, a *app, mailer receipts.Mailer, base string) error {
	worker, err := newWorker(mailer, d.config.From, a.pool, a.metrics, d.logger)
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
	if d.sendsEvents {
		group.Go(func() error {
			d.services.DeliverEvents(ctx, base+"/v1/webhooks/stripe", d.config.WebhookSecret, d.logger)
			return nil
		})
	}
	if d.services.Postgres != nil {
		group.Go(func() error {
			select {
			case <-d.services.Postgres.Exited():
				return errors.New("the private PostgreSQL stopped")
			case <-ctx.Done():
				return nil
			}
		})
	}
	return nil
}

// devKey returns an API key that is the same after a restart, so that a curl line in a
// shell's history keeps working. The file at path has one key for each database.
func devKey(ctx context.Context, pool *pgxpool.Pool, path string) (string, error) {
	stored, err := os.ReadFile(path) //nolint:gosec // in the program's cache folder
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read API key of dev: %w", err)
	}
	authenticator, err := accounts.NewAuthenticator(accounts.Config{Pool: pool, Clock: time.Now}) // before the first request
	if err != nil {
		return "", err
	}
	for key := range strings.FieldsSeq(string(stored)) {
		if _, err := authenticator.Authenticate(ctx, key); !errors.Is(err, accounts.ErrUnauthorized) {
			return key, err
		}
	}
	_, key, err := accounts.Create(ctx, pool, "dev")
	if err != nil {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the same
	if err == nil {
		_, err = fmt.Fprintln(file, key)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return "", fmt.Errorf("store API key of dev: %w", err)
	}
	return key, nil
}

// baseURL returns the URL of the listener for a client on this machine.
func baseURL(address net.Addr) string {
	host, port, _ := net.SplitHostPort(address.String())
	if net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

func (d devRun) printWelcome(base, key string) {
	var text strings.Builder
	fmt.Fprintf(&text, "\nOrders API   %s   contract: %s\n", base, d.docsURL)
	// slim:begin
	fmt.Fprintf(&text, "Console      %s   cause a failure, and see the recovery\n", d.consoleURL)
	// slim:end
	if d.services.Postgres != nil {
		fmt.Fprintf(&text, "PostgreSQL   psql '%s'\n", d.services.Postgres.URL("postgres"))
	}
	if d.services.Stripe != nil {
		kind := "a stand-in"
		if d.sendsEvents {
			kind += " that sends webhooks"
		}
		fmt.Fprintf(&text, "Stripe       %s; its charges: %s\n", kind, d.config.APIBase)
	} else if d.config.WebhookSecret == "" {
		fmt.Fprintf(&text, "Webhooks     off; set STRIPE_WEBHOOK_SECRET to the secret that this command prints:\n"+
			"             stripe listen --forward-to %s/v1/webhooks/stripe\n", base)
	}
	if d.services.DataDir != "" {
		fmt.Fprintf(&text, "Data         %s   orders dev --reset deletes it\n", d.services.DataDir)
	}
	fmt.Fprintf(&text, "API key      %s\n\nCreate an order:\n\n%s\n\n"+
		"Send the same line again: the same bytes come back, and nothing is charged twice.\n\n", key, curl(base, key))
	_, _ = io.WriteString(d.stdout, text.String())
}

// curl returns a command line that creates an order. Its idempotency key is new after each
// start, so that the user sees a first response and a replay.
func curl(base, key string) string {
	return fmt.Sprintf(`  curl -i %s/v1/orders -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' -H 'Idempotency-Key: my-order-%s' \
    -d '{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",
         "items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}'`,
		base, key, time.Now().Format("20060102-150405"))
}
