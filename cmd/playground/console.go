package main

import (
	"context"
	"path/filepath"
	"time"

	"example.com/orders-api/cmd/playground/internal/demo"
)

// consoleExtension adds the page /console. It also becomes the mailer, so that it can count receipts.
type consoleExtension struct {
	ProviderLatency time.Duration `default:"700ms" help:"How much latency the console adds to each call to the provider, so that you see a row at each recovery point."`
}

func (c consoleExtension) add(ctx context.Context, s *server) error {
	config := s.config
	console, err := demo.NewConsole(ctx, demo.Options{
		Env:     demo.Env{Database: config.Database, Stripe: config.Stripe},
		Fake:    s.services.Stripe,
		Pool:    s.App.Pool,
		Account: s.account,
		APIKey:  s.apiKey,
		LogFile: filepath.Join(s.folder, "console.log"),
		Mailer:  s.mailer,
		BaseURL: s.base,
		Latency: max(c.ProviderLatency, 0),
	}, s.logger)
	if err != nil {
		return err
	}
	s.HTTP.Handler = console.Mount(s.HTTP.Handler)
	s.mailer = console
	s.docs = console.DocsURL()
	s.line("Console", console.URL()+"   cause a failure, and see the recovery")
	s.jobs = append(s.jobs, console.Run)
	return nil
}
