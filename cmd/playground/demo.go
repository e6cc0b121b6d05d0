package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/cmd/playground/internal/demo"
	"example.com/orders-api/cmd/playground/internal/devservices"
	"example.com/orders-api/internal/embeddedpg"
)

type tour struct {
	extensions // for --console

	Console bool `help:"After the tour, run playground run with the console on the tour's database, with the environment of playground run; Ctrl-C ends it."`
}

// Environment returns the groups that the tour reads. Only --console needs all groups of playground run,
// so without it a wrong value in another group does not stop the tour.
func (c *tour) Environment(config *app.Config) []any {
	if c.Console {
		return new(run).Environment(config)
	}
	return []any{&config.Database, &config.Stripe}
}

// Run runs the demo.
func (c *tour) Run(ctx context.Context) (err error) {
	config := new(app.Config)
	if err := load(config, c.Environment(config)); err != nil {
		return err
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
	if err := demo.Tour(ctx, demo.Env{Database: config.Database, Stripe: config.Stripe}, services, os.Stdout); err != nil {
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
	return playground{config, services, folder, config.Logger(os.Stderr)}.run(ctx, c.extensions)
}

// serve is the API process that the tour and the console start, and kill.
type serve struct{}

func (serve) Environment(config *app.Config) []any {
	return append(config.Operations(), &config.Listen)
}

func (serve) Run(ctx context.Context, config *app.Config) error {
	a, err := app.New(ctx, config)
	if err != nil {
		return err
	}
	defer a.Close()
	s, err := a.Listen(ctx)
	if err != nil {
		return err
	}
	return s.Run(ctx, 0)
}
