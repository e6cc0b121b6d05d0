package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/devservices"
	"example.com/orders-api/cmd/internal/doctor"
	"example.com/orders-api/internal/accounts"
)

// Env is the environment of a tour.
type Env struct {
	boot.Database
	boot.Stripe
}

// Tour creates the schema and an account in the database, runs the scenario of each claim
// and prints a line for it. It stops at the first claim that does not hold.
func Tour(ctx context.Context, env Env, services *devservices.Services, out io.Writer) error {
	if err := boot.Migrate(ctx, env.Database); err != nil {
		return err
	}
	database, provider := "the database of DATABASE_URL", "a stand-in for Stripe"
	if services.Postgres != nil {
		database = fmt.Sprintf("a private PostgreSQL, started in %.1f s", services.Took.Seconds())
	}
	if services.Stripe == nil {
		if err := checkStripe(ctx, env.Stripe); err != nil {
			return err
		}
		provider = "the provider at " + env.ProviderURL()
	}
	pool, err := boot.Pool(ctx, env.Database, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer pool.Close()
	_, key, err := accounts.Create(ctx, pool, "demo")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "On %s, with %s.\n"+
		"The API is a process of its own. Each line is checked against the provider's list of payments.\n\n", database, provider)
	folder, err := os.MkdirTemp("", "orders-demo-")
	if err != nil {
		return err
	}
	log := filepath.Join(folder, "serve.log")
	err = runTour(ctx, Options{
		Environ:     append(os.Environ(), "DATABASE_URL="+string(env.URL)),
		LogFile:     log,
		APIKey:      key,
		Pool:        pool,
		ProviderKey: string(env.SecretKey),
		ProviderURL: env.APIBase,
		StandIn:     services.Stripe,
	}, out)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w\nthe log of the API is %s", err, log)
	}
	return errors.Join(err, os.RemoveAll(folder))
}

// checkStripe returns the cause and the remedy if Stripe cannot be used. Otherwise they
// would be in the log of the tour's API only.
func checkStripe(ctx context.Context, stripe boot.Stripe) error {
	result := doctor.Stripe(ctx, stripe, 30*time.Second)
	if result.Mark == doctor.Failure && ctx.Err() == nil {
		return fmt.Errorf("Stripe cannot be used: %s", result.Message) //nolint:staticcheck // a name
	}
	return ctx.Err()
}
