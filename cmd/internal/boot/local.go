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
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// ErrLiveKey says that a command for trying things out was given a key that
// moves real money.
var ErrLiveKey = errors.New("STRIPE_SECRET_KEY is a live key; dev and demo take test keys only (sk_test_… or rk_test_…)")

// standInKey is what the stand-in is called with. It is no secret.
const standInKey = "sk_test_stand_in"

// Local is what dev and demo bring along when the environment names nothing
// else: a private PostgreSQL and a stand-in for Stripe.
type Local struct {
	Postgres *embeddedpg.Server // nil when DATABASE_URL was set
	Stripe   *stripetest.Server // nil when STRIPE_SECRET_KEY was set
	stripe   *http.Server
}

// StartLocal starts what the environment does not name, and puts its address
// into the environment, where [Load] and child processes find it. The data is
// kept in dataDir, or thrown away when that is empty. notice is told of slow
// steps before they begin.
func StartLocal(ctx context.Context, dataDir string, logger *slog.Logger, notice func(string)) (*Local, error) {
	if payments.IsLiveKey(os.Getenv("STRIPE_SECRET_KEY")) {
		return nil, ErrLiveKey
	}
	local := &Local{}
	if os.Getenv("DATABASE_URL") == "" {
		server, err := embeddedpg.Start(ctx, embeddedpg.Options{
			BinDir:  os.Getenv("PG_BIN"),
			DataDir: dataDir,
			Logger:  logger,
			Notice:  notice,
		})
		if err != nil {
			return nil, err
		}
		local.Postgres = server
		if err := os.Setenv("DATABASE_URL", server.URL("postgres")); err != nil {
			return nil, errors.Join(err, local.Stop())
		}
	}
	if os.Getenv("STRIPE_SECRET_KEY") == "" {
		if err := local.startStripe(ctx, logger); err != nil {
			return nil, errors.Join(err, local.Stop())
		}
	}
	return local, nil
}

func (l *Local) startStripe(ctx context.Context, logger *slog.Logger) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("stand-in for Stripe: %w", err)
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
	return errors.Join(
		os.Setenv("STRIPE_SECRET_KEY", standInKey),
		os.Setenv("STRIPE_API_BASE", "http://"+listener.Addr().String()),
	)
}

// Stop ends what StartLocal started.
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
