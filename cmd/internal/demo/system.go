package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/demo/faultproxy"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/subprocess"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
	"example.com/orders-api/receipts"
)

// Options configure a tour or a [Console]. All are required except the last four.
type Options struct {
	Environ     []string
	LogFile     string
	APIKey      string
	Pool        *pgxpool.Pool
	ProviderKey string

	ProviderURL string             // "" is Stripe's own
	Fake        *stripetest.Server // nil if the provider is Stripe itself

	BaseURL string        // of another API on the same database, for the page's curl lines
	Latency time.Duration // added to each call to the provider
}

// system is what one play at a time runs on.
type system struct {
	Options
	account   uuid.UUID
	mailbox   *Mailbox
	provider  *payments.Client // reaches the provider without the proxy
	transport *http.Transport
	current   atomic.Pointer[play]

	// Set by the first call of ready.
	proxy     *faultproxy.Proxy
	base      string
	client    *client.Client
	api       *subprocess.Process
	completer *subprocess.Process
}

func newSystem(ctx context.Context, options Options, next receipts.Mailer) (*system, error) {
	account, err := accounts.NewAuthenticator(options.Pool, time.Now).Authenticate(ctx, options.APIKey)
	if err != nil {
		return nil, fmt.Errorf("demo: find the account of the API key: %w", err)
	}
	provider := payments.New(payments.Config{
		SecretKey: options.ProviderKey,
		BaseURL:   options.ProviderURL,
		Timeout:   30 * time.Second,
		Transport: setup.ProviderTransport(),
		Logger:    slog.New(slog.DiscardHandler),
	})
	return &system{
		Options:   options,
		account:   account,
		mailbox:   &Mailbox{next: next},
		provider:  provider,
		transport: &http.Transport{MaxIdleConnsPerHost: concurrency},
	}, nil
}

func (s *system) ready(ctx context.Context) error {
	if s.proxy == nil {
		if err := s.prepare(ctx); err != nil {
			return err
		}
	}
	if !s.api.Exited() {
		return nil
	}
	return s.api.Serve(ctx, s.base+"/readyz")
}

// timeout is short, so that the lease of a killed process expires soon. A confirm at Stripe
// takes seconds over a slow link.
func (s *system) timeout() time.Duration {
	if s.Fake == nil {
		return 20*time.Second + 2*s.Latency
	}
	return 2*time.Second + 2*s.Latency
}

func (s *system) lease() time.Duration { return s.timeout() + 2*time.Second }

const chargeWindow = 24 * time.Hour

func (s *system) prepare(ctx context.Context) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	address, err := subprocess.FreeAddress(ctx)
	if err != nil {
		return err
	}
	s.base = "http://" + address
	s.client, err = client.New(client.Config{
		BaseURL:    s.base,
		APIKey:     s.APIKey,
		Transport:  s.transport,
		Backoff:    time.Millisecond,
		MaxBackoff: 100 * time.Millisecond,
		Observe: func(attempt client.Attempt) {
			if p := s.current.Load(); p != nil && attempt.Method == http.MethodPost {
				p.observe(p.noteResponse(attempt))
			}
		},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.LogFile, nil, 0o600); err != nil {
		return err
	}
	s.proxy, err = faultproxy.New(ctx, faultproxy.Options{
		Provider: s.ProviderURL,
		Latency:  s.Latency,
		OnCall: func(call faultproxy.Call) {
			// The API waits for this, so each step is observed. Later calls are not the play's.
			if p := s.current.Load(); p != nil && p.ctx.Err() == nil {
				p.observe(p.noteCall(call))
			}
		},
	})
	if err != nil {
		return err
	}
	environ := append(s.Environ[:len(s.Environ):len(s.Environ)],
		"LISTEN_ADDR="+address,
		"ADMIN_ADDR=", // another process may use the default
		"STRIPE_SECRET_KEY="+s.ProviderKey,
		"STRIPE_API_BASE="+s.proxy.URL(),
		"STRIPE_WEBHOOK_SECRET=",
		"STRIPE_TIMEOUT="+s.timeout().String(),
		"LOCK_TIMEOUT="+s.lease().String(),
		"COMPLETER_GRACE=5m",
		"CHARGE_WINDOW="+chargeWindow.String(),
		"KEY_RETENTION=72h",
		"LOG_LEVEL=info",
		"LOG_FORMAT=text",
	)
	command := func(args ...string) *subprocess.Process {
		return &subprocess.Process{Name: "orders " + args[0], Executable: executable, Args: args, Environ: environ, Log: s.LogFile}
	}
	s.api = command("serve", "--shutdown-delay", "0")
	s.completer = command("completer")
	return nil
}

func (s *system) close() error {
	var err error
	if s.api != nil {
		err = s.api.Stop()
	}
	s.transport.CloseIdleConnections()
	if s.proxy != nil {
		err = errors.Join(err, s.proxy.Close())
	}
	s.provider.Close()
	return err
}
