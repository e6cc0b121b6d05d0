package app

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"slices"
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
	Refunds  *refunds.Service
	Changes  *reconcile.Service

	limiter   *admission.Limiter
	ownRoutes func(*api.Handlers, chi.Router)
	closing   []func()
}

// New connects to the database and creates the services. In a command that does not load the
// provider's key, they can read what is stored, but not call the provider. The caller closes the app.
func New(ctx context.Context, config *Config) (_ *App, err error) {
	logger := config.Logger(os.Stderr)
	a := &App{Config: config, Logger: logger}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if a.Pool, err = Pool(ctx, config.Database, logger); err != nil {
		return nil, err
	}
	a.onClose(a.Pool.Close)
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
		LockTimeout: config.LockTimeout,
		Clock:       time.Now,
		Waiters:     maxWaiters,
		Logger:      logger,
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
		Timeout:       config.StripeTimeout,
		Transport:     transport,
		Observe:       a.Metrics.ProviderAttempt,
		Logger:        logger,
	})
	a.onClose(a.Payments.Close)
	a.Orders = &orders.Service{
		Payments: a.Payments, Logger: logger, Pool: a.Pool, Engine: a.Engine, ChargeWindow: config.ChargeWindow, Events: config.EventsURL != "",
	}
	a.Refunds = &refunds.Service{Pool: a.Pool, Orders: a.Orders}
	a.Engine.Register(a.Orders.Operations()...)
	a.Engine.Register(a.Refunds.Operation())
	a.ownRoutes = registerOwn(a.Engine, config, a.Pool, transport)
	a.Changes = &reconcile.Service{Orders: a.Orders, Timeout: config.LongestRun() + config.StripeTimeout}
	return a, nil
}

// StartMonitor starts the monitor until the app closes.
func (a *App) StartMonitor(ctx context.Context, check func(context.Context, *pgxpool.Pool) error) error {
	stop, err := a.Monitor.Start(ctx, check)
	if err == nil {
		a.onClose(stop)
	}
	return err
}

func (a *App) onClose(closing func()) { a.closing = append(a.closing, closing) }

// Close calls the functions of onClose, the newest first.
func (a *App) Close() {
	for _, closing := range slices.Backward(a.closing) {
		closing()
	}
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
