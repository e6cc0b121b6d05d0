package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/wneessen/go-mail"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/internal/subprocess"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
	"example.com/orders-api/receipts"
)

// Env is the environment of a tour.
type Env struct {
	app.Database
	app.Stripe
	app.Events
}

// Options configure a tour or a [Console].
type Options struct {
	Env
	Fake    *stripetest.Server // nil if the provider is Stripe itself
	Pool    *pgxpool.Pool
	Account uuid.UUID
	APIKey  string
	LogFile string
	Mailer  receipts.Mailer // nil accepts all receipts
	BaseURL string          // of the server that has the console
	Latency time.Duration   // added to each call to the provider
}

// system is the API process, the proxy and the clients that plays use, one play at a time.
type system struct {
	Options
	provider  *payments.Client // reaches the provider without the proxy
	proxy     *proxy
	base      string // URL of the API process
	api       *subprocess.Process
	client    *client.Client
	transport *http.Transport
	current   atomic.Pointer[play]

	mu    sync.Mutex
	mails map[uuid.UUID]int // accepted receipts by order
}

func newSystem(ctx context.Context, options Options) (*system, error) {
	s := &system{
		Options:   options,
		transport: &http.Transport{MaxIdleConnsPerHost: concurrency},
		mails:     map[uuid.UUID]int{},
	}
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	address, err := subprocess.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	s.base = "http://" + address
	s.provider = payments.New(payments.Config{
		SecretKey: string(options.SecretKey),
		BaseURL:   options.APIBase,
		Timeout:   30 * time.Second,
		Transport: app.ProviderTransport(),
		Logger:    slog.New(slog.DiscardHandler),
	})
	s.client, err = client.New(client.Config{
		BaseURL:    s.base,
		APIKey:     options.APIKey,
		Transport:  s.transport,
		Backoff:    time.Millisecond,
		MaxBackoff: 100 * time.Millisecond,
		Observe:    func(attempt client.Attempt) { s.current.Load().responded(attempt.Response) },
	})
	if err != nil {
		return nil, err
	}
	if s.proxy, err = newProxy(ctx, s); err != nil {
		return nil, err
	}
	// The timeout is short, so that the lease of a killed process expires soon. A confirm at
	// Stripe takes seconds over a slow link.
	timeout := 2*time.Second + 2*s.Latency
	if s.Fake == nil {
		timeout += 18 * time.Second
	}
	s.api = &subprocess.Process{
		Name:       "orders serve",
		Executable: executable,
		Args:       []string{"serve"},
		Log:        s.LogFile,
		Environ: append(os.Environ(),
			"DATABASE_URL="+string(s.DatabaseURL),
			"LISTEN_ADDR="+address,
			"STRIPE_SECRET_KEY="+string(s.SecretKey),
			"STRIPE_API_BASE="+s.proxy.url,
			"STRIPE_WEBHOOK_SECRET=",
			"EVENTS_URL="+string(options.EventsURL),
			"EVENTS_SECRET="+string(options.EventsSecret),
			"STEP_TIMEOUT="+timeout.String(),
			"LEASE_DURATION="+(timeout+2*time.Second).String(),
			"COMPLETER_GRACE=5m",
			"CHARGE_WINDOW=23h",
			"KEY_RETENTION=72h",
			"LOG_LEVEL=info",
			"LOG_FORMAT=text",
		),
	}
	return s, os.WriteFile(s.LogFile, nil, 0o600)
}

// checkProvider reports a wrong key and a missing network before the first order.
func (s *system) checkProvider(ctx context.Context) error {
	rejected, err := s.provider.Check(ctx)
	switch {
	case rejected:
		return fmt.Errorf("STRIPE_SECRET_KEY: %w", err)
	case err != nil:
		return fmt.Errorf("%s cannot be used: %w", s.ProviderURL(), err)
	}
	return nil
}

// ready starts the API process, unless it runs.
func (s *system) ready(ctx context.Context) error {
	if !s.api.Exited() {
		return nil
	}
	return s.api.Serve(ctx, s.base+"/readyz")
}

// Send implements [receipts.Mailer] and counts the accepted receipts.
func (s *system) Send(ctx context.Context, orderID uuid.UUID, receipt *mail.Msg) error {
	if s.Mailer != nil {
		if err := s.Mailer.Send(ctx, orderID, receipt); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mails[orderID]++
	return nil
}

func (s *system) close() error {
	err := s.api.Stop()
	s.transport.CloseIdleConnections()
	s.provider.Close()
	return errors.Join(err, s.proxy.stop())
}
