package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/console"
)

// By how much the console holds each call to the provider up.
const (
	defaultPace = 700 * time.Millisecond // for people to see a row at each of its points
	maxPace     = 5 * time.Second        // keeps an order from outliving the console's patience
)

// newConsole completes the options and returns the page at /console. It is for dev
// and demo, and sees the receipts that pass through its mailbox.
func newConsole(
	ctx context.Context, b *backend, config devEnv, local *boot.Local, options console.Options,
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
	options.Pool, options.Payments = b.pool, b.payments
	options.ProviderKey, options.ProviderURL, options.StandIn = string(config.SecretKey), config.APIBase, local.Stripe
	return console.New(ctx, options)
}
