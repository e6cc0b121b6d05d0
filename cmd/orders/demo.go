package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/tour"
	"example.com/orders-api/internal/accounts"
)

// demoEnv is the environment of orders demo.
type demoEnv struct {
	boot.Database
	boot.Stripe
}

// demo takes the guided tour, on a database and a provider of its own unless
// the environment names others.
func demo(ctx context.Context, call invocation) error {
	var config demoEnv
	flags := call.flags()
	stay := flags.Bool("console", false, "when the tour is over, go on with the console, like orders dev and\n"+
		"with its environment, on the tour's database; Ctrl-C ends it")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if err := boot.LoadLocal(&config); err != nil {
		return err
	}
	var after devEnv
	if *stay {
		if err := boot.LoadLocal(&after); err != nil {
			return err
		}
	}
	fmt.Fprintln(call.stdout, "orders demo: a tour of charging exactly once")
	begin := time.Now()
	local, err := boot.StartLocal(ctx, &config.Database, &config.Stripe, boot.LocalOptions{
		Logger: slog.New(slog.NewTextHandler(call.stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Notice: func(line string) { fmt.Fprintln(call.stdout, line) },
	})
	if err != nil {
		return err
	}
	err = runDemo(ctx, config, local, time.Since(begin), call.stdout)
	switch {
	case err != nil:
	case *stay:
		after.Database, after.Stripe = config.Database, config.Stripe
		err = goOn(ctx, after, local, call)
	default:
		fmt.Fprintln(call.stdout, "\nTo break an order yourself, and watch it heal: make run, then http://localhost:8080/console")
	}
	return errors.Join(err, local.Stop())
}

// goOn is orders dev on what the tour leaves behind, and leaves nothing itself.
func goOn(ctx context.Context, config devEnv, local *boot.Local, call invocation) error {
	folder, err := os.MkdirTemp("", "orders-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return errors.Join(runDev(ctx, config, local, folder, defaultLatency, config.Logger(call.stderr), call.stdout),
		os.RemoveAll(folder))
}

func runDemo(ctx context.Context, config demoEnv, local *boot.Local, started time.Duration, stdout io.Writer) error {
	if err := boot.Migrate(ctx, config.Database); err != nil {
		return err
	}
	pool, err := boot.Pool(ctx, config.Database, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	_, key, err := accounts.Create(ctx, pool, "demo")
	pool.Close()
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}

	database, provider := "the database of DATABASE_URL", config.Provider()
	if local.Postgres != nil {
		database = fmt.Sprintf("a private PostgreSQL, up in %.1f s", started.Seconds())
	}
	if local.Stripe != nil {
		provider = "a stand-in for Stripe"
	}
	fmt.Fprintf(stdout, "On %s, with %s. API and worker are\n"+
		"processes of their own. Each line is checked against the provider's list of payments.\n\n", database, provider)

	return tour.Run(ctx, tour.Options{
		Executable:  executable,
		Environ:     append(os.Environ(), "DATABASE_URL="+string(config.URL)),
		APIKey:      key,
		ProviderKey: string(config.SecretKey),
		ProviderURL: config.APIBase,
		StandIn:     local.Stripe,
		Out:         stdout,
	})
}
