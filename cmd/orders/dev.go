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
	"example.com/orders-api/cmd/internal/console"
	"example.com/orders-api/internal/accounts"
)

// devEnv is the environment of orders dev.
type devEnv struct {
	boot.Database
	boot.DevListen
	boot.Admin
	boot.Stripe
	boot.Mail
	boot.Durations
	boot.Completer
	boot.Traces
	boot.Log
}

// dev runs API, worker, completer and reaper in one process. It starts a database and
// a provider, and writes receipts to files, unless the environment names others.
func dev(ctx context.Context, call invocation) error {
	var config devEnv
	flags := call.flags()
	latency := flags.Duration("provider-latency", defaultLatency,
		"how much latency the console adds to each call to the provider,\nso that you see a row at each recovery point")
	reset := flags.Bool("reset", false, "delete the private database and the state of the stand-in for Stripe first")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if *latency < 0 || *latency > maxLatency {
		return wrongUsage(call.name, "--provider-latency %s is not between 0s and %s", *latency, maxLatency)
	}
	if err := boot.LoadDev(&config); err != nil {
		return err
	}
	if *reset && config.URL != "" {
		return wrongUsage(call.name, "--reset deletes the private database only, and DATABASE_URL names another one")
	}
	fmt.Fprintln(call.stdout, "orders dev: API, worker, completer and reaper in one process; Ctrl-C ends it and keeps the data")
	folder, err := devFolder()
	if err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	devServices, err := boot.StartDevServices(ctx, &config.Database, &config.Stripe, boot.DevOptions{
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
	return errors.Join(runDev(ctx, config, devServices, folder, *latency, logger, call.stdout), devServices.Stop())
}

// runDev runs everything until ctx ends. The folder keeps the API key and the log of
// the console.
func runDev(
	ctx context.Context, config devEnv, devServices *boot.DevServices, folder string, latency time.Duration, logger *slog.Logger, stdout io.Writer,
) error {
	if err := boot.Migrate(ctx, config.Database); err != nil {
		return err
	}
	return withApp(ctx, config.Database, config.Stripe, config.Durations, logger, func(a *app) error {
		key, err := devKey(ctx, a.pool, filepath.Join(folder, "api-keys"))
		if err != nil {
			return err
		}
		server, err := newServer(ctx, a, config.Database, config.Durations, logger)
		if err != nil {
			return err
		}
		defer server.close()
		stopAdmin, err := startAdmin(ctx, config.AdminAddr, a.metrics, server.ready.Check, logger)
		if err != nil {
			return err
		}
		defer stopAdmin()
		group, ctx := errgroup.WithContext(ctx)
		page, err := newConsole(ctx, a, config, devServices, console.Options{
			LogFile:         filepath.Join(folder, "console.log"),
			APIKey:          key,
			Logger:          logger,
			ProviderLatency: latency,
		})
		if err != nil {
			return err
		}
		listener, err := startDev(ctx, group, a, server, config, page, logger)
		if err != nil {
			return err
		}
		base := baseURL(listener.Addr())
		printWelcome(stdout, config, devServices, base, page.URL(base), key)
		if devServices.Postgres != nil {
			group.Go(func() error {
				select {
				case <-devServices.Postgres.Exited():
					return errors.New("the private PostgreSQL stopped")
				case <-ctx.Done():
					return nil
				}
			})
		}
		return group.Wait()
	})
}

// startDev starts the API, the worker, the completer, the reaper and the console.
func startDev(
	ctx context.Context, group *errgroup.Group, a *app, server *server, config devEnv, page *console.Console, logger *slog.Logger,
) (net.Listener, error) {
	worker, err := newWorker(page.Mailbox, config.From, a.pool, a.metrics, logger)
	if err != nil {
		return nil, err
	}
	completer, err := newCompleter(a, config.Durations, config.Completer, completerLimit, completerConcurrency)
	if err != nil {
		return nil, err
	}
	reaper, err := newReaper(a.engine, config.Durations, reapBatch)
	if err != nil {
		return nil, err
	}
	if server.http.Handler, err = page.Mount(server.http.Handler); err != nil {
		return nil, err
	}
	listener, err := listen(ctx, "LISTEN_ADDR", config.Addr)
	if err != nil {
		return nil, err
	}
	group.Go(func() error { return server.run(ctx, listener, 0) })
	group.Go(func() error { return page.Run(ctx) })
	group.Go(func() error { return worker.Run(ctx, time.Second) })
	group.Go(func() error {
		return interval{time.Minute}.run(ctx, "completer", logger, func(ctx context.Context) error { return complete(ctx, completer, a.metrics, logger) })
	})
	group.Go(func() error {
		return interval{10 * time.Minute}.run(ctx, "reaper", logger, func(ctx context.Context) error { return reap(ctx, reaper, a.metrics, logger) })
	})
	return listener, nil
}

// devKey returns an API key that stays the same from one start to the next, so that a
// curl line in a shell's history keeps working. The keys are in a file, one line for
// each database; no other command stores an API key.
func devKey(ctx context.Context, pool *pgxpool.Pool, path string) (string, error) {
	stored, err := os.ReadFile(path) //nolint:gosec // in the program's cache folder
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read API key of dev: %w", err)
	}
	for key := range strings.FieldsSeq(string(stored)) {
		if known, err := accounts.ValidAPIKey(ctx, pool, key); err != nil || known {
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

func printWelcome(w io.Writer, config devEnv, devServices *boot.DevServices, base, consoleURL, key string) {
	fmt.Fprintf(w, "\nOrders API   %s   contract: %s/docs\n", base, base)
	fmt.Fprintf(w, "Console      %s   break an order, and watch it heal\n", consoleURL)
	if devServices.Postgres != nil {
		fmt.Fprintf(w, "PostgreSQL   psql '%s'\n", devServices.Postgres.URL("postgres"))
	}
	if devServices.Stripe != nil {
		fmt.Fprintf(w, "Stripe       a stand-in; what it has charged: %s\n", config.APIBase)
	}
	if devServices.DataDir != "" {
		fmt.Fprintf(w, "Data         %s   orders dev --reset deletes it\n", devServices.DataDir)
	}
	fmt.Fprintf(w, "API key      %s\n\nCreate an order:\n\n%s\n\n"+
		"Send the same line again: the same bytes come back, and nothing is charged twice.\n\n", key, curl(base, key))
}

// curl returns a command line that creates an order. Its idempotency key is new for each
// start, so that each start shows a first request and its replay.
func curl(base, key string) string {
	return fmt.Sprintf(`  curl -i %s/v1/orders -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' -H 'Idempotency-Key: my-order-%s' \
    -d '{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",
         "items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}'`,
		base, key, time.Now().Format("20060102-150405"))
}
