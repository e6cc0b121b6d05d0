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
	checks "example.com/orders-api/cmd/internal/doctor"
	"example.com/orders-api/cmd/internal/tour"
	"example.com/orders-api/internal/accounts"
)

// demoEnv is the environment of orders demo.
type demoEnv struct {
	boot.Database
	boot.Stripe
}

// demo runs the guided tour. It starts a database and a provider unless the
// environment names them.
func demo(ctx context.Context, call invocation) error {
	var config demoEnv
	flags := call.flags()
	stay := flags.Bool("console", false, "after the tour, run orders dev with the console on the tour's database,\n"+
		"with the environment of orders dev; Ctrl-C ends it")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if err := boot.LoadDev(&config); err != nil {
		return err
	}
	var devConfig devEnv
	if *stay {
		if err := boot.LoadDev(&devConfig); err != nil {
			return err
		}
	}
	fmt.Fprintln(call.stdout, "orders demo: a tour of charging exactly once")
	begin := time.Now()
	devServices, err := boot.StartDevServices(ctx, &config.Database, &config.Stripe, boot.DevOptions{
		Logger: slog.New(slog.NewTextHandler(call.stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Notice: func(line string) { fmt.Fprintln(call.stdout, line) },
	})
	if err != nil {
		return err
	}
	err = runDemo(ctx, config, devServices, time.Since(begin), call.stdout)
	switch {
	case err != nil:
	case *stay:
		devConfig.Database, devConfig.Stripe = config.Database, config.Stripe
		err = devAfterDemo(ctx, devConfig, devServices, call)
	default:
		fmt.Fprintln(call.stdout, "\nTo break an order yourself, and watch it heal: make run, then the URL of the console that it prints")
	}
	return errors.Join(err, devServices.Stop())
}

// checkStripe returns the cause and the remedy if Stripe does not respond or rejects the
// key. The tour would find them only in the log of its API.
func checkStripe(ctx context.Context, stripe boot.Stripe) error {
	checker := checks.Checker{Environment: &boot.All{Stripe: stripe}, Timeout: 30 * time.Second}
	result := checker.CheckStripe(ctx)
	if result.Severity == checks.Failure && ctx.Err() == nil {
		return fmt.Errorf("Stripe cannot be used: %s", result.Message) //nolint:staticcheck // a name
	}
	return ctx.Err()
}

// devAfterDemo runs orders dev on the services of the tour, and keeps no data.
func devAfterDemo(ctx context.Context, config devEnv, devServices *boot.DevServices, call invocation) error {
	folder, err := os.MkdirTemp("", "orders-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return errors.Join(runDev(ctx, config, devServices, folder, defaultLatency, config.Logger(call.stderr), call.stdout),
		os.RemoveAll(folder))
}

func runDemo(ctx context.Context, config demoEnv, devServices *boot.DevServices, started time.Duration, stdout io.Writer) error {
	if err := boot.Migrate(ctx, config.Database); err != nil {
		return err
	}
	if devServices.Stripe == nil {
		if err := checkStripe(ctx, config.Stripe); err != nil {
			return err
		}
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

	database, provider := "the database of DATABASE_URL", "the provider at "+config.ProviderURL()
	if devServices.Postgres != nil {
		database = fmt.Sprintf("a private PostgreSQL, up in %.1f s", started.Seconds())
	}
	if devServices.Stripe != nil {
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
		StandIn:     devServices.Stripe,
		Out:         stdout,
	})
}
