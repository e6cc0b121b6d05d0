package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/demo"
	"example.com/orders-api/cmd/internal/devservices"
	checks "example.com/orders-api/cmd/internal/doctor"
	"example.com/orders-api/internal/accounts"
)

type demoEnv struct {
	boot.Database
	boot.Stripe
}

// runDemo starts a database and a provider, unless the environment names them, and runs
// the tour.
func runDemo(ctx context.Context, call *invocation) error {
	var config demoEnv
	stay := call.flags.Bool("console", false, "after the tour, run orders dev with the console on the tour's database,\n"+
		"with the environment of orders dev; Ctrl-C ends it")
	if err := call.parse(&config); err != nil {
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
	services, err := devservices.Start(ctx, &config.Database, &config.Stripe, devservices.Options{
		Logger: slog.New(slog.NewTextHandler(call.stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Notice: func(line string) { fmt.Fprintln(call.stdout, line) },
	})
	if err != nil {
		return err
	}
	err = tour(ctx, config, services, time.Since(begin), call.stdout)
	switch {
	case err != nil:
	case *stay:
		devConfig.Database, devConfig.Stripe.SecretKey, devConfig.APIBase = config.Database, config.SecretKey, config.APIBase
		err = devAfterTour(ctx, devRun{
			config: devConfig, services: services, latency: defaultLatency, logger: devConfig.Logger(call.stderr), stdout: call.stdout,
		})
	default:
		fmt.Fprintln(call.stdout, "\nTo cause failures yourself: make run, then open the URL of the console that it prints")
	}
	return errors.Join(err, services.Stop())
}

// devAfterTour runs orders dev on the services of the tour and keeps no data.
func devAfterTour(ctx context.Context, run devRun) (err error) {
	if run.folder, err = os.MkdirTemp("", "orders-demo-"); err != nil {
		return err
	}
	return errors.Join(run.run(ctx), os.RemoveAll(run.folder))
}

// checkStripe returns the cause and the remedy if Stripe cannot be used. Otherwise they
// would be in the log of the tour's API only.
func checkStripe(ctx context.Context, stripe boot.Stripe) error {
	result := checks.Stripe(ctx, stripe, 30*time.Second)
	if result.Mark == checks.Failure && ctx.Err() == nil {
		return fmt.Errorf("Stripe cannot be used: %s", result.Message) //nolint:staticcheck // a name
	}
	return ctx.Err()
}

func tour(ctx context.Context, config demoEnv, services *devservices.Services, started time.Duration, stdout io.Writer) error {
	if err := boot.Migrate(ctx, config.Database); err != nil {
		return err
	}
	database, provider := "the database of DATABASE_URL", "a stand-in for Stripe"
	if services.Postgres != nil {
		database = fmt.Sprintf("a private PostgreSQL, started in %.1f s", started.Seconds())
	}
	if services.Stripe == nil {
		if err := checkStripe(ctx, config.Stripe); err != nil {
			return err
		}
		provider = "the provider at " + config.ProviderURL()
	}
	pool, err := boot.Pool(ctx, config.Database, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer pool.Close()
	_, key, err := accounts.Create(ctx, pool, "demo")
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "On %s, with %s.\n"+
		"The API is a process of its own. Each line is checked against the provider's list of payments.\n\n", database, provider)
	folder, err := os.MkdirTemp("", "orders-demo-")
	if err != nil {
		return err
	}
	log := filepath.Join(folder, "serve.log")
	err = demo.Tour(ctx, demo.Options{
		Environ:     append(os.Environ(), "DATABASE_URL="+string(config.URL)),
		LogFile:     log,
		APIKey:      key,
		Pool:        pool,
		ProviderKey: string(config.SecretKey),
		ProviderURL: config.APIBase,
		StandIn:     services.Stripe,
	}, stdout)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w\nthe log of the API is %s", err, log)
	}
	return errors.Join(err, os.RemoveAll(folder))
}
