package devservices

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/payments/stripetest"
)

// Services are the started services.
type Services struct {
	Postgres *embeddedpg.Server // nil if the environment names a database
	Stripe   *stripetest.Server // nil if the environment has an API key
	DataDir  string             // "" if no data is kept
	Took     time.Duration      // how long the start took

	stopStripe    func() error
	acted         chan string // ids of the intents whose customers acted
	webhookSecret app.Secret  // signs the fake's events; "" if the user sends events
}

// Start starts the services that d and s do not name, and stores their addresses in d and s. The state
// of the fake is kept with the data of the database.
func Start(ctx context.Context, d *app.Database, s *app.Stripe, options embeddedpg.Options) (*Services, error) {
	begin := time.Now()
	services := &Services{acted: make(chan string, 100)}
	if d.DatabaseURL == "" {
		options.BinDir = os.Getenv("PG_BIN")
		server, err := embeddedpg.Start(ctx, options)
		if errors.Is(err, embeddedpg.ErrInUse) {
			return nil, fmt.Errorf("another playground run uses the data in %s: stop it, "+
				"or set DATABASE_URL to another database\n(%w)", options.DataDir, err)
		}
		if err != nil {
			return nil, err
		}
		services.Postgres, services.DataDir = server, options.DataDir
		d.DatabaseURL = app.Secret(server.URL("postgres"))
	}
	if s.SecretKey == "" {
		if err := services.startStripe(ctx, s, options); err != nil {
			return nil, errors.Join(err, services.Stop())
		}
	}
	services.Took = time.Since(begin)
	return services, nil
}

func (d *Services) startStripe(ctx context.Context, s *app.Stripe, options embeddedpg.Options) error {
	stripe := stripetest.New(stripetest.Options{})
	if d.DataDir != "" {
		state := filepath.Join(d.DataDir, "stripe.json")
		if options.Reset {
			if err := os.Remove(state); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("reset: %w", err)
			}
		}
		if err := stripe.Persist(state); err != nil {
			return fmt.Errorf("fake Stripe: %w\n(playground run --reset deletes its state and the database)", err)
		}
	}
	url, stop, err := Serve(ctx, http.HandlerFunc(d.serveStripe))
	if err != nil {
		return fmt.Errorf("fake Stripe: %w", err)
	}
	d.Stripe, d.stopStripe = stripe, stop
	s.SecretKey, s.APIBase = "sk_test_fake", url
	if s.WebhookSecret == "" { // a user with a secret sends the events, for example with stripe listen
		d.webhookSecret = app.Secret("whsec_" + rand.Text())
		s.WebhookSecret = d.webhookSecret
	}
	return nil
}

// Serve serves handler at a loopback address until stop is called. It logs nothing.
func Serve(ctx context.Context, handler http.Handler) (url string, stop func() error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address := listener.Addr().String()
	server := &http.Server{
		Handler:           stripetest.CheckHost(address, handler),
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	go func() { _ = server.Serve(listener) }()
	return "http://" + address, server.Close, nil
}

// Watch returns an error if the private PostgreSQL stops before ctx ends.
func (d *Services) Watch(ctx context.Context) error {
	if d.Postgres == nil {
		return nil
	}
	select {
	case <-d.Postgres.Exited():
		return errors.New("the private PostgreSQL stopped")
	case <-ctx.Done():
		return nil
	}
}

// Stop stops the services, the database last.
func (d *Services) Stop() error {
	var err error
	if d.Stripe != nil {
		d.Stripe.Close()
		err = d.stopStripe()
	}
	if d.Postgres != nil {
		err = errors.Join(err, d.Postgres.Stop())
	}
	return err
}
