package main

import (
	"context"
	"flag"
	"path/filepath"
	"time"

	"example.com/orders-api/cmd/internal/demo"
)

// consoleExtension adds the console.
func consoleExtension(flags *flag.FlagSet) func(context.Context, *devServer) error {
	latency := flags.Duration("provider-latency", 700*time.Millisecond,
		"how much latency the console adds to each call to the provider,\nso that you see a row at each recovery point")
	return func(ctx context.Context, s *devServer) error {
		config := s.config
		console, err := demo.NewConsole(ctx, demo.Options{
			Env:     demo.Env{Database: config.Database, Stripe: config.Stripe},
			Fake:    s.services.Stripe,
			Pool:    s.pool,
			Account: s.account,
			APIKey:  s.apiKey,
			LogFile: filepath.Join(s.folder, "console.log"),
			Mailer:  s.mailer,
			BaseURL: s.base,
			Latency: max(*latency, 0),
		}, s.logger)
		if err != nil {
			return err
		}
		s.http.Handler = console.Mount(s.http.Handler)
		s.mailer = console
		s.docs = console.DocsURL()
		s.line("Console", console.URL()+"   cause a failure, and see the recovery")
		s.jobs = append(s.jobs, console.Run)
		return nil
	}
}
