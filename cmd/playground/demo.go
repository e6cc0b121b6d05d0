package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/cmd/playground/internal/demo"
	"example.com/orders-api/cmd/playground/internal/devservices"
	"example.com/orders-api/internal/embeddedpg"
)

type tour struct {
	extensions // for --console

	Console bool `help:"After the tour, run playground run with the console on the tour's database, with the environment of playground run; Ctrl-C ends it."`
}

// Run runs the demo.
func (c *tour) Run(ctx context.Context) (err error) {
	if !c.Console { // a wrong value of a variable that the tour does not need does not stop it
		for _, match := range regexp.MustCompile(`(?m)^  ([A-Z_]+)`).FindAllStringSubmatch(app.Variables, -1) {
			if name := match[1]; name != "DATABASE_URL" && !strings.HasPrefix(name, "STRIPE_") || name == "STEP_TIMEOUT" {
				_ = os.Unsetenv(name)
			}
		}
	}
	config, err := load()
	if err != nil {
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

func (serve) Run(ctx context.Context) error {
	config, err := app.Load("DATABASE_URL", "STRIPE_SECRET_KEY")
	if err != nil {
		return err
	}
	config.AdminAddr = "" // another process may listen there
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
