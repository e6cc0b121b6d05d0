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
	"example.com/orders-api/internal/embeddedpg"
)

// devEnv is the environment of orders dev.
type devEnv struct {
	boot.Serve
	boot.Mail
	boot.Completer
}

// dev runs API, worker, completer and reaper in one process, on whatever of database, provider and
// mail server the environment names, and on its own for the rest.
func dev(ctx context.Context, call invocation) error {
	var config devEnv
	flags := call.flags()
	latency := flags.Duration("provider-latency", defaultLatency,
		"how much latency the console adds to each call to the provider,\nso that you see a row at each recovery point")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if *latency < 0 || *latency > maxLatency {
		return wrongUsage(call.name, "--provider-latency %s is not between 0s and %s", *latency, maxLatency)
	}
	if err := boot.LoadLocal(&config); err != nil {
		return err
	}
	fmt.Fprintln(call.stdout, "orders dev: API, worker, completer and reaper in one process; Ctrl-C ends it and keeps the data")
	cache, err := embeddedpg.CacheDir()
	if err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	local, err := boot.StartLocal(ctx, &config.Database, &config.Stripe, boot.LocalOptions{
		DataDir: filepath.Join(cache, "dev"),
		Logger:  logger,
		Notice:  func(line string) { fmt.Fprintln(call.stdout, line) },
	})
	if err != nil {
		return err
	}
	return errors.Join(runDev(ctx, config, local, cache, *latency, logger, call.stdout), local.Stop())
}

// runDev runs all of it until ctx ends. The folder keeps the API key and the console's log.
func runDev(
	ctx context.Context, config devEnv, local *boot.Local, folder string, latency time.Duration, logger *slog.Logger, stdout io.Writer,
) error {
	if err := boot.Migrate(ctx, config.Database); err != nil {
		return err
	}
	return withBackend(ctx, config.Database, config.Stripe, config.Durations, logger, func(b *backend) error {
		key, err := devKey(ctx, b.pool, filepath.Join(folder, "dev-api-keys"))
		if err != nil {
			return err
		}
		server, err := newServer(ctx, b, config.Serve, logger)
		if err != nil {
			return err
		}
		defer server.close()
		stopAdmin, err := startAdmin(ctx, config.AdminAddr, b.metrics, server.ready.Check, logger)
		if err != nil {
			return err
		}
		defer stopAdmin()
		group, ctx := errgroup.WithContext(ctx)
		page, err := newConsole(ctx, b, config, local, console.Options{
			LogFile:         filepath.Join(folder, "console.log"),
			APIKey:          key,
			Logger:          logger,
			ProviderLatency: latency,
		})
		if err != nil {
			return err
		}
		listener, err := startDev(ctx, group, b, server, config, page, logger)
		if err != nil {
			return err
		}
		printWelcome(stdout, config, local, baseURL(listener.Addr()), key)
		if local.Postgres != nil {
			group.Go(func() error {
				select {
				case <-local.Postgres.Exited():
					return errors.New("the private PostgreSQL has ended")
				case <-ctx.Done():
					return nil
				}
			})
		}
		return group.Wait()
	})
}

// startDev starts what other commands run in processes of their own, and the
// console.
func startDev(
	ctx context.Context, group *errgroup.Group, b *backend, server *server, config devEnv, page *console.Console, logger *slog.Logger,
) (net.Listener, error) {
	worker, err := newWorker(page.Mailbox, config.From, b.pool, b.metrics, b.traces, logger)
	if err != nil {
		return nil, err
	}
	completer, err := newCompleter(b, config.Durations, config.Completer, passLimit, passConcurrency)
	if err != nil {
		return nil, err
	}
	reaper, err := newReaper(b.engine, config.Durations, reapBatch)
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
		return schedule{time.Minute}.run(ctx, logger, func(ctx context.Context) error { return complete(ctx, completer, b.metrics, logger) })
	})
	group.Go(func() error {
		return schedule{10 * time.Minute}.run(ctx, logger, func(ctx context.Context) error { return reap(ctx, reaper, b.metrics, logger) })
	})
	return listener, nil
}

// devKey returns an API key that stays the same from one start to the next, so
// that a curl line in a shell's history keeps working. It is kept in a file,
// which is right for this command only: one line for each database it was
// started on.
func devKey(ctx context.Context, pool *pgxpool.Pool, path string) (string, error) {
	stored, err := os.ReadFile(path) //nolint:gosec // in our own cache folder
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
		return "", fmt.Errorf("keep API key of dev: %w", err)
	}
	return key, nil
}

// baseURL is where a client on this machine finds the listener.
func baseURL(address net.Addr) string {
	host, port, _ := net.SplitHostPort(address.String())
	if net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

func printWelcome(w io.Writer, config devEnv, local *boot.Local, base, key string) {
	fmt.Fprintf(w, "\nOrders API   %s   contract: %s/docs\n", base, base)
	fmt.Fprintf(w, "Console      %s%s   break an order, and watch it heal\n", base, console.Path)
	if local.Postgres != nil {
		fmt.Fprintf(w, "PostgreSQL   %s\n", local.Postgres.URL("postgres"))
	}
	if local.Stripe != nil {
		fmt.Fprintf(w, "Stripe       a stand-in; what it has charged: %s\n", config.APIBase)
	}
	fmt.Fprintf(w, "API key      %s\n\nCreate an order:\n\n%s\n\n"+
		"Send the same line again: the same bytes come back, and nothing is charged twice.\n\n", key, curl(base, key))
}

// curl is a command line that creates an order, under a key of this start: what
// an earlier start left half done may be unknown to the stand-in of this one.
func curl(base, key string) string {
	return fmt.Sprintf(`  curl -i %s/v1/orders -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' -H 'Idempotency-Key: my-order-%s' \
    -d '{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",
         "items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}'`,
		base, key, time.Now().Format("20060102-150405"))
}
