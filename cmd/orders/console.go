package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/console"
)

// The latency that the console adds to each call to the provider.
const (
	defaultLatency = 700 * time.Millisecond // lets people see a row at each recovery point
	maxLatency     = 5 * time.Second        // keeps an order within the console's timeout
)

// newConsole completes the options and returns the page at /console, for dev and
// demo. The receipts of the worker must go through its mailbox.
func newConsole(
	ctx context.Context, a *app, config devEnv, devServices *boot.DevServices, options console.Options,
) (*console.Console, error) {
	var err error
	if options.Executable, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	mailer, err := config.Mailer(options.Logger)
	if err != nil {
		return nil, err
	}
	if options.Mailbox, err = console.NewMailbox(mailer); err != nil {
		return nil, err
	}
	options.Environ = append(os.Environ(), "DATABASE_URL="+string(config.URL))
	options.Pool, options.Payments = a.pool, a.payments
	options.ProviderKey, options.ProviderURL, options.StandIn = string(config.SecretKey), config.APIBase, devServices.Stripe
	return console.New(ctx, options)
}
