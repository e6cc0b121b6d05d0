package main

import (
	"context"
	"errors"
	"flag"
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

	"example.com/orders-api/api"
	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/internal/embeddedpg"
)

// dev is the command: API and worker in one process, on whatever of database,
// provider and mail server the environment names, and on its own for the rest.
func dev(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if err := parse(flag.NewFlagSet("dev", flag.ContinueOnError), args, stderr); err != nil {
		return err
	}
	var logging struct{ boot.Log }
	if err := boot.Load(&logging); err != nil {
		return err
	}
	logger := logging.Logger(stderr)
	cache, err := embeddedpg.CacheDir()
	if err != nil {
		return err
	}
	local, err := boot.StartLocal(ctx, filepath.Join(cache, "dev"), logger, func(line string) { fmt.Fprintln(stdout, line) })
	if err != nil {
		return err
	}
	return errors.Join(runDev(ctx, local, cache, logger, stdout), local.Stop())
}

func runDev(ctx context.Context, local *boot.Local, cache string, logger *slog.Logger, stdout io.Writer) error {
	var config struct {
		boot.Serve
		boot.Mail
	}
	if err := boot.Load(&config); err != nil {
		return err
	}
	if err := boot.Migrate(ctx, config.Database); err != nil {
		return err
	}
	pool, err := boot.Pool(ctx, config.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	key, err := devKey(ctx, pool, filepath.Join(cache, "dev-api-key"))
	if err != nil {
		return err
	}
	server, err := newServer(config.Serve, pool, logger)
	if err != nil {
		return err
	}
	worker, err := newWorker(config.Mail, pool, logger)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", config.Addr)
	if err != nil {
		return fmt.Errorf("LISTEN_ADDR: %w", err)
	}
	printWelcome(stdout, local, listener.Addr(), key)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.run(ctx, listener) })
	group.Go(func() error { return worker.Run(ctx, time.Second) })
	if local.Postgres != nil {
		group.Go(func() error {
			select {
			case <-local.Postgres.Exited():
				return errors.New("the private PostgreSQL ended")
			case <-ctx.Done():
				return nil
			}
		})
	}
	return group.Wait()
}

// devKey returns an API key that stays the same from one start to the next, so
// that a curl line in a shell's history keeps working. It is written to a file,
// which is right for this command only.
func devKey(ctx context.Context, pool *pgxpool.Pool, file string) (string, error) {
	stored, err := os.ReadFile(file) //nolint:gosec // our own cache folder
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read API key of dev: %w", err)
	}
	key := strings.TrimSpace(string(stored))
	if known, err := api.KnowsKey(ctx, pool, key); err != nil || known {
		return key, err
	}
	_, key, err = api.CreateAccount(ctx, pool, "dev")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep API key of dev: %w", err)
	}
	return key, nil
}

func printWelcome(w io.Writer, local *boot.Local, address net.Addr, key string) {
	_, port, _ := net.SplitHostPort(address.String())
	base := "http://localhost:" + port
	fmt.Fprintf(w, "\nOrders API   %s   contract: %s/docs\n", base, base)
	if local.Postgres != nil {
		fmt.Fprintf(w, "PostgreSQL   %s\n", local.Postgres.URL("postgres"))
	}
	if local.Stripe != nil {
		fmt.Fprintf(w, "Stripe       a stand-in, see %s\n", os.Getenv("STRIPE_API_BASE"))
	}
	fmt.Fprintf(w, "API key      %s\n\nCreate an order:\n\n%s\n\nSend the same line again: the same bytes come back, and nothing is charged twice.\n\n", key, curl(base, key))
}

// curl is a command line that creates an order.
func curl(base, key string) string {
	return fmt.Sprintf(`  curl -i %s/v1/orders -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' -H 'Idempotency-Key: my-first-order-0001' \
    -d '{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",
         "items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}'`, base, key)
}
