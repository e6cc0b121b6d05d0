package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/metrics"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/orders/refunds"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// App holds the services of a process.
type App struct {
	Config   *Config
	Logger   *slog.Logger
	Pool     *pgxpool.Pool
	Monitor  *postgres.Monitor
	Metrics  *metrics.Metrics
	Engine   *idempotency.Engine
	Payments *payments.Client
	Orders   *orders.Service
	Changes  *reconcile.Service

	limiter     *admission.Limiter
	ownRoutes   func(*api.Handlers, chi.Router)
	stopMonitor func()
}

// New connects to the database and creates the services. In a command that does not load the
// provider's key, they can read what is stored, but not call the provider. The caller closes the app.
func New(ctx context.Context, config *Config) (_ *App, err error) {
	logger := config.Logger(os.Stderr)
	a := &App{Config: config, Logger: logger, stopMonitor: func() {}}
	if a.Pool, err = Pool(ctx, config.Database, logger); err != nil {
		return nil, err
	}
	a.Monitor = postgres.NewMonitor(a.Pool, logger)
	a.limiter = admission.New(admission.Config{
		Permits: permitsPerConnection * int(a.Pool.Config().MaxConns),
		Backlog: maxBacklog,
		Wait:    maxBacklogWait,
	})
	a.Metrics = metrics.New(metrics.Config{
		Pool:      a.Pool,
		Ready:     a.Monitor.Err,
		Logger:    logger,
		Limiter:   a.limiter,
		Retention: config.KeyRetention,
	})
	a.Engine, err = idempotency.New(a.Pool, idempotency.Config{
		LeaseDuration: config.LeaseDuration,
		Clock:         time.Now,
		Waiters:       maxWaiters,
		Logger:        logger,
	})
	if err != nil {
		return nil, err
	}
	// A request has no permit while it waits for a provider.
	transport := admission.SuspendDuring(ProviderTransport())
	a.Payments = payments.New(payments.Config{
		SecretKey:     string(config.SecretKey),
		WebhookSecret: string(config.WebhookSecret),
		BaseURL:       config.APIBase,
		Timeout:       config.StepTimeout,
		Transport:     transport,
		Observe:       a.Metrics.ProviderAttempt,
		Logger:        logger,
	})
	a.Orders = &orders.Service{
		Payments: a.Payments, Logger: logger, Pool: a.Pool, Engine: a.Engine, ChargeWindow: config.ChargeWindow, Events: config.EventsURL != "",
	}
	a.Engine.Register(a.Orders.Operations()...)
	a.Engine.Register((&refunds.Service{Orders: a.Orders}).Operation())
	a.ownRoutes = registerOwn(a.Engine, config, a.Pool, transport)
	a.Changes = &reconcile.Service{Orders: a.Orders, Timeout: config.LongestRun() + config.StepTimeout}
	return a, nil
}

// StartMonitor starts the monitor until the app closes.
func (a *App) StartMonitor(ctx context.Context) (err error) {
	stop, err := a.Monitor.Start(ctx, checkSchema)
	if err == nil {
		a.stopMonitor = stop
	}
	return err
}

// Close disconnects from the database. Listeners are closed by the end of the process.
func (a *App) Close() {
	a.stopMonitor()
	a.Pool.Close()
}

// registerOwn registers the operations that a clone adds, and returns what adds their routes to the API
// (docs/add-an-operation.md).
func registerOwn(*idempotency.Engine, *Config, *pgxpool.Pool, http.RoundTripper) func(*api.Handlers, chi.Router) {
	return nil
}

const (
	// maxWaiters bounds the requests that wait for a key, because each reads a row once per second or more.
	maxWaiters = 200

	// A process that makes 400 orders a second serves the backlog in 0.65 s. A slower one rejects what waits
	// for longer than a client may be expected to.
	maxBacklog     = 256
	maxBacklogWait = 1300 * time.Millisecond

	// Two requests keep a connection busy, because each also computes.
	permitsPerConnection = 2
)

// Logger returns a logger that writes to w.
func (c *Config) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// ProviderTransport returns a transport that uses the proxy of HTTPS_PROXY.
func ProviderTransport() *http.Transport {
	transport := payments.NewTransport()
	transport.Proxy = http.ProxyFromEnvironment
	return transport
}

// tryTimeout bounds the tries of the provider and of the mail server at start.
const tryTimeout = 5 * time.Second

// tried returns the error of a setting that can never work, and logs that of a service that may
// only be unavailable.
func tried(ctx context.Context, logger *slog.Logger, setting string, never bool, err error) error {
	if never {
		return fmt.Errorf("%s: %w", setting, err)
	}
	if err != nil {
		logger.WarnContext(ctx, setting+": not available, and tried again when it is needed", "error", err)
	}
	return nil
}

// TryProvider checks that the provider accepts its key.
func (a *App) TryProvider(ctx context.Context) error {
	a.Logger.InfoContext(ctx, "payment provider", "provider", a.Config.ProviderURL(), "mode", a.Config.Mode())
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	rejected, err := a.Payments.Check(ctx)
	return tried(ctx, a.Logger, "STRIPE_SECRET_KEY", rejected, err)
}

// Mailer returns the mailer of SMTP_URL, and tries it.
func (m *Mail) Mailer(ctx context.Context, logger *slog.Logger) (receipts.Mailer, error) {
	mailer, err := receipts.NewSMTP(string(m.SMTPURL), m.HelloName())
	if err != nil {
		return nil, err
	}
	logger.Info("receipts are sent by mail", "server", mailer.String())
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	err = mailer.Check(ctx)
	return mailer, tried(ctx, logger, "SMTP_URL", errors.Is(err, receipts.ErrCredentials), err)
}
