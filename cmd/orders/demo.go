package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/demo"
	"example.com/orders-api/cmd/internal/devservices"
)

// runDemo starts a database and a provider, unless the environment names them, and runs
// the tour.
func runDemo(ctx context.Context, call *invocation) error {
	var config demo.Env
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
	services, err := devservices.Start(ctx, &config.Database, &config.Stripe, devservices.Options{
		Logger: slog.New(slog.NewTextHandler(call.stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Notice: func(line string) { fmt.Fprintln(call.stdout, line) },
	})
	if err != nil {
		return err
	}
	err = demo.Tour(ctx, config, services, call.stdout)
	switch {
	case err != nil:
	case *stay:
		devConfig.Database, devConfig.Stripe = config.Database, config.Stripe
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
