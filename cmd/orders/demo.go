package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"example.com/orders-api/cmd/internal/demo"
	"example.com/orders-api/cmd/internal/devservices"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/embeddedpg"
)

func runDemo(ctx context.Context, call *invocation) (err error) {
	var config demo.Env
	var devConfig devEnv
	add := extend(call.flags) // for --console
	stay := call.flags.Bool("console", false, "after the tour, run orders dev with the console on the tour's database,\n"+
		"with the environment of orders dev; Ctrl-C ends it")
	if err := call.parse(&config); err != nil {
		return err
	}
	if err := setup.LoadDev(&config); err != nil {
		return err
	}
	if *stay {
		if err := setup.LoadDev(&devConfig); err != nil {
			return err
		}
	}
	fmt.Fprintln(call.stdout, "orders demo: a tour of charging exactly once")
	services, err := devservices.Start(ctx, &config.Database, &config.Stripe, embeddedpg.Options{
		Logger: slog.New(slog.NewTextHandler(call.stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Notice: func(line string) { fmt.Fprintln(call.stdout, line) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, services.Stop()) }()
	if err := demo.Tour(ctx, config, services, call.stdout); err != nil {
		return err
	}
	if !*stay {
		fmt.Fprintln(call.stdout, "\nTo cause failures yourself: make run, then open the URL of the console that it prints")
		return nil
	}
	folder, err := os.MkdirTemp("", "orders-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	devConfig.Database, devConfig.Stripe = config.Database, config.Stripe
	return devRun{devConfig, services, folder, devConfig.Logger(call.stderr), call.stdout, add}.run(ctx)
}
