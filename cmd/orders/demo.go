package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"example.com/orders-api/api"
	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/tour"
)

// demo is the command: the guided tour, on a database and a provider of its own
// unless the environment names others.
func demo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if err := parse(flag.NewFlagSet("demo", flag.ContinueOnError), args, stderr); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "orders demo: a tour of charging exactly once")
	begin := time.Now()
	local, err := boot.StartLocal(ctx, "", slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		func(line string) { fmt.Fprintln(stdout, line) })
	if err != nil {
		return err
	}
	return errors.Join(runDemo(ctx, local, time.Since(begin), stdout), local.Stop())
}

func runDemo(ctx context.Context, local *boot.Local, started time.Duration, stdout io.Writer) error {
	var config boot.Serve
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
	_, key, err := api.CreateAccount(ctx, pool, "demo")
	pool.Close()
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}

	database, provider := "the database of DATABASE_URL", "Stripe's test mode"
	if local.Postgres != nil {
		database = fmt.Sprintf("a private PostgreSQL, up in %.1f s", started.Seconds())
	}
	if local.Stripe != nil {
		provider = "a stand-in for Stripe"
	}
	fmt.Fprintf(stdout, "On %s, and %s. The API and the worker are\nprocesses of their own; every line is checked against the provider's list of payments.\n\n", database, provider)

	return tour.Run(ctx, tour.Options{
		Executable:  executable,
		Environ:     os.Environ(),
		APIKey:      key,
		ProviderKey: string(config.SecretKey),
		ProviderURL: config.APIBase,
		StandIn:     local.Stripe,
		Out:         stdout,
	})
}
