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

	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/payments/stripetest"
)

// standInKey is what the stand-in is called with. It is no secret.
const standInKey = "sk_test_stand_in"

// Local is what dev and demo bring along when the environment names nothing
// else: a private PostgreSQL and a stand-in for Stripe.
type Local struct {
	Postgres *embeddedpg.Server // nil when the environment names a database
	Stripe   *stripetest.Server // nil when it names a key of Stripe's
	stripe   *http.Server
}

// LocalOptions say how to start what is missing.
type LocalOptions struct {
	DataDir string            // keeps the database; "" throws it away
	Logger  *slog.Logger      // needed
	Notice  func(line string) // told of slow steps before they begin; may be nil
}

// StartLocal starts what d and s, as [LoadLocal] left them, do not name, and
// fills in its address.
func StartLocal(ctx context.Context, d *Database, s *Stripe, options LocalOptions) (*Local, error) {
	local := &Local{}
	if d.URL == "" {
		server, err := embeddedpg.Start(ctx, embeddedpg.Options{
			BinDir:  os.Getenv("PG_BIN"),
			DataDir: options.DataDir,
			Logger:  options.Logger,
			Notice:  options.Notice,
		})
		if errors.Is(err, embeddedpg.ErrInUse) {
			return nil, fmt.Errorf("another orders dev is running on this machine: stop it, "+
				"or name a database of its own for this one with DATABASE_URL\n(%w)", err)
		}
		if err != nil {
			return nil, err
		}
		local.Postgres = server
		d.URL = Secret(server.URL("postgres"))
	}
	if s.SecretKey == "" {
		url, err := local.startStripe(ctx, options.Logger)
		if err != nil {
			return nil, errors.Join(err, local.Stop())
		}
		s.SecretKey, s.APIBase = standInKey, url
	}
	return local, nil
}

// startStripe starts the stand-in and returns its URL.
func (l *Local) startStripe(ctx context.Context, logger *slog.Logger) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("stand-in for Stripe: %w", err)
	}
	l.Stripe = stripetest.New(stripetest.Options{})
	l.stripe = &http.Server{
		Handler:           l.Stripe,
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := l.stripe.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("the stand-in for Stripe ended", "error", err)
		}
	}()
	return "http://" + listener.Addr().String(), nil
}

// Stop ends what StartLocal started, the database last.
func (l *Local) Stop() error {
	var err error
	if l.stripe != nil {
		l.Stripe.Close()
		err = l.stripe.Close()
	}
	if l.Postgres != nil {
		err = errors.Join(err, l.Postgres.Stop())
	}
	return err
}
