package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/orders-api/cmd/internal/demo"
	"example.com/orders-api/receipts"
)

// defaultLatency lets people see a row at each recovery point.
const defaultLatency = 700 * time.Millisecond

func latencyFlag(call *invocation) *time.Duration {
	return call.flags.Duration("provider-latency", defaultLatency,
		"how much latency the console adds to each call to the provider,\nso that you see a row at each recovery point")
}

// addConsole adds the console to the server of dev. The worker must use its mailbox.
func addConsole(
	ctx context.Context, group *errgroup.Group, d devRun, s *server, base, apiKey string, mailer receipts.Mailer,
) (*demo.Console, error) {
	console, err := demo.NewConsole(ctx, demo.Options{
		Environ:     append(os.Environ(), "DATABASE_URL="+string(d.config.URL)),
		LogFile:     filepath.Join(d.folder, "console.log"),
		APIKey:      apiKey,
		Pool:        s.pool,
		ProviderKey: string(d.config.SecretKey),
		ProviderURL: d.config.APIBase,
		StandIn:     d.services.Stripe,
		BaseURL:     base,
		Latency:     max(d.latency, 0),
	}, mailer, d.logger)
	if err != nil {
		return nil, err
	}
	if s.http.Handler, err = console.Mount(s.http.Handler); err != nil {
		return nil, err
	}
	group.Go(func() error { return console.Run(ctx) })
	return console, nil
}
