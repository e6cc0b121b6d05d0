package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"example.com/orders-api/cmd/internal/hostcheck"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/payments/stripetest"
)

// standInKey is the API key for the stand-in, not a secret.
const standInKey = "sk_test_stand_in"

// DevServices are the services that dev and demo start if the environment names none.
type DevServices struct {
	Postgres *embeddedpg.Server // nil if the environment names a database
	Stripe   *stripetest.Server // nil if the environment has an API key
	DataDir  string             // of the private PostgreSQL; "" if it keeps no data
	stripe   *http.Server
	acted    chan string // ids of the intents whose customers acted
}

// DevOptions configure [StartDevServices].
type DevOptions struct {
	DataDir string            // of the database and the state of the stand-in; "" keeps no data
	Reset   bool              // deletes both first
	Logger  *slog.Logger      // required
	Notice  func(line string) // if set, is called before each slow step
}

// StartDevServices starts the services whose addresses are missing in d and s after
// [LoadDev], and sets these addresses.
func StartDevServices(ctx context.Context, d *Database, s *Stripe, options DevOptions) (*DevServices, error) {
	services := &DevServices{acted: make(chan string, 100)}
	if d.URL == "" {
		server, err := embeddedpg.Start(ctx, embeddedpg.Options{
			BinDir:  os.Getenv("PG_BIN"),
			DataDir: options.DataDir,
			Reset:   options.Reset,
			Logger:  options.Logger,
			Notice:  options.Notice,
		})
		if errors.Is(err, embeddedpg.ErrInUse) {
			return nil, fmt.Errorf("another orders dev uses the data in %s: stop it, "+
				"or set DATABASE_URL to another database\n(%w)", options.DataDir, err)
		}
		if err != nil {
			return nil, err
		}
		services.Postgres = server
		d.URL = Secret(server.URL("postgres"))
	}
	if err := services.startProvider(ctx, s, options); err != nil {
		return nil, errors.Join(err, services.Stop())
	}
	return services, nil
}

// Files in DataDir that belong to the data of the private database.
const (
	stateFile    = "stripe.json" // of the stand-in
	providerFile = "provider"    // the last one that the data was used with
)

func (d *DevServices) startProvider(ctx context.Context, s *Stripe, options DevOptions) error {
	state := ""
	if d.Postgres != nil && options.DataDir != "" {
		d.DataDir = options.DataDir
		state = filepath.Join(d.DataDir, stateFile)
		if options.Reset {
			for _, name := range []string{stateFile, providerFile} {
				if err := os.Remove(filepath.Join(d.DataDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("reset: %w", err)
				}
			}
		}
		if err := warnOfOtherProvider(s, options); err != nil {
			return fmt.Errorf("provider of the data: %w", err)
		}
	}
	if s.SecretKey != "" {
		return nil
	}
	url, err := d.startStripe(ctx, state, options.Logger)
	s.SecretKey, s.APIBase = standInKey, url
	return err
}

// warnOfOtherProvider warns if the data was used with another provider last, and stores
// the present one.
func warnOfOtherProvider(s *Stripe, options DevOptions) error {
	provider := "the stand-in for Stripe"
	if s.SecretKey != "" {
		provider = s.ProviderURL()
	}
	file := filepath.Join(options.DataDir, providerFile)
	other, err := os.ReadFile(file) //nolint:gosec // in the program's cache folder
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(other) > 0 && string(other) != provider && options.Notice != nil {
		options.Notice(fmt.Sprintf("Warning: this database was also used with %s. "+
			"Its unfinished orders and its refunds fail, because %s does not know their payments. "+
			"Use --reset, or set DATABASE_URL to another database.", other, provider))
	}
	return os.WriteFile(file, []byte(provider), 0o600)
}

// startStripe starts the stand-in and returns its URL. state names its file, or is "".
func (d *DevServices) startStripe(ctx context.Context, state string, logger *slog.Logger) (string, error) {
	stripe := stripetest.New(stripetest.Options{})
	if state != "" {
		if err := stripe.Persist(state); err != nil {
			return "", fmt.Errorf("stand-in for Stripe: %w\n(orders dev --reset deletes its state and the database)", err)
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("stand-in for Stripe: %w", err)
	}
	d.Stripe = stripe
	d.stripe = &http.Server{
		Handler:           hostcheck.Handler(listener.Addr().String(), http.HandlerFunc(d.serveStripe)),
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
