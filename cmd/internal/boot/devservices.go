package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"example.com/orders-api/cmd/internal/hostcheck"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/payments/stripetest"
)

// standInKey is the API key for the stand-in for Stripe. It is no secret.
const standInKey = "sk_test_stand_in"

// DevServices are the services that dev and demo start if the environment does not
// name them: a private PostgreSQL and a stand-in for Stripe.
type DevServices struct {
	Postgres *embeddedpg.Server // nil if the environment names a database
	Stripe   *stripetest.Server // nil if the environment has an API key
	stripe   *http.Server
}

// DevOptions configure [StartDevServices].
type DevOptions struct {
	DataDir string            // of the database; "" keeps no data
	Logger  *slog.Logger      // required
	Notice  func(line string) // if set, is called before each slow step
}

// StartDevServices starts the services whose addresses are missing in d and s after
// [LoadDev], and sets these addresses.
func StartDevServices(ctx context.Context, d *Database, s *Stripe, options DevOptions) (*DevServices, error) {
	services := &DevServices{}
	if d.URL == "" {
		server, err := embeddedpg.Start(ctx, embeddedpg.Options{
			BinDir:  os.Getenv("PG_BIN"),
			DataDir: options.DataDir,
			Logger:  options.Logger,
			Notice:  options.Notice,
		})
		if errors.Is(err, embeddedpg.ErrInUse) {
			return nil, fmt.Errorf("another orders dev is running on this machine: stop it, "+
				"or set DATABASE_URL to another database\n(%w)", err)
		}
		if err != nil {
			return nil, err
		}
		services.Postgres = server
		d.URL = Secret(server.URL("postgres"))
	}
	if s.SecretKey == "" {
		url, err := services.startStripe(ctx, options.Logger)
		if err != nil {
			return nil, errors.Join(err, services.Stop())
		}
		s.SecretKey, s.APIBase = standInKey, url
	}
	return services, nil
}

// startStripe starts the stand-in and returns its URL.
func (d *DevServices) startStripe(ctx context.Context, logger *slog.Logger) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("stand-in for Stripe: %w", err)
	}
	d.Stripe = stripetest.New(stripetest.Options{})
	d.stripe = &http.Server{
		Handler:           hostcheck.Handler(listener.Addr().String(), d.Stripe),
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := d.stripe.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("the stand-in for Stripe stopped", "error", err)
		}
	}()
	return "http://" + listener.Addr().String(), nil
}

// Stop stops the services, the database last.
func (d *DevServices) Stop() error {
	var err error
	if d.stripe != nil {
		d.Stripe.Close()
		err = d.stripe.Close()
	}
	if d.Postgres != nil {
		err = errors.Join(err, d.Postgres.Stop())
	}
	return err
}
