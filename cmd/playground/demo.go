package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/cmd/internal/cli"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/cmd/playground/internal/demo"
	"example.com/orders-api/cmd/playground/internal/devservices"
	"example.com/orders-api/internal/embeddedpg"
)

type tour struct {
	cli.Env[demo.Env]
	extensions // for --console

	Console bool `help:"After the tour, run playground run with the console on the tour's database, with the environment of playground run; Ctrl-C ends it."`
}

// Run runs the demo.
func (c *tour) Run(ctx context.Context) (err error) {
	var config demo.Env
	if err := load(&config, &config.Database, &config.Stripe); err != nil {
		return err
	}
	var everything environment
	if c.Console {
		if err := load(&everything, &everything.Database, &everything.Stripe); err != nil {
			return err
		}
	}
	fmt.Println("playground demo: a tour of charging exactly once")
	services, err := devservices.Start(ctx, &config.Database, &config.Stripe, embeddedpg.Options{
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Notice: func(line string) { fmt.Println(line) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, services.Stop()) }()
	if err := demo.Tour(ctx, config, services, os.Stdout); err != nil {
		return err
	}
	if !c.Console {
		fmt.Println("\nTo cause failures yourself: make run, then open the URL of the console that it prints")
		return nil
	}
	folder, err := os.MkdirTemp("", "orders-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	everything.Database, everything.Stripe = config.Database, config.Stripe
	return playground{everything, services, folder, everything.Logger(os.Stderr)}.run(ctx, c.extensions)
}

// serve is the API process that the tour and the console kill.
type serve struct{}

func (serve) Run(ctx context.Context) error {
	var config struct {
		setup.App
		setup.Listen
	}
	if err := setup.Load(&config); err != nil {
		return err
	}
	a, err := app.New(ctx, config.App, config.Logger(os.Stderr))
	if err != nil {
		return err
	}
	defer a.Close()
	s, err := a.Listen(ctx, config.Addr, "")
	if err != nil {
		return err
	}
	return s.Run(ctx, 0)
}
