package app

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/metrics"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/provider"
	"example.com/orders-api/orders/refunds"
	"example.com/orders-api/payments"
)

// App holds the services of every command that runs operations.
type App struct {
	Services

	Config   setup.App
	Logger   *slog.Logger
	Pool     *pgxpool.Pool
	Monitor  *postgres.Monitor
	Metrics  *metrics.Metrics
	Engine   *idempotency.Engine
	Payments *payments.Client

	limiter *admission.Limiter
	closing []func()
}

// Open creates the app of a command that calls the provider first of all, so it tries the
// provider's key.
func Open(ctx context.Context, config setup.App, logger *slog.Logger) (*App, error) {
	a, err := New(ctx, config, logger)
	if err != nil {
		return nil, err
	}
	if err := setup.TryProvider(ctx, a.Payments, logger); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// New connects to the database and creates the services. The caller closes the app.
func New(ctx context.Context, config setup.App, logger *slog.Logger) (_ *App, err error) {
	a := &App{Config: config, Logger: logger}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if a.Pool, err = setup.Pool(ctx, config.Database, logger); err != nil {
		return nil, err
	}
	a.onClose(a.Pool.Close)
	a.Monitor = postgres.NewMonitor(a.Pool, logger)
	a.limiter, err = admission.New(admission.Config{
		Work:     workPerConnection * int(a.Pool.Config().MaxConns),
		Backlog:  maxBacklog,
		Wait:     maxBacklogWait,
		InFlight: maxInFlight,
	})
	if err != nil {
		return nil, err
	}
	a.Metrics = metrics.New(metrics.Config{
		Pool:      a.Pool,
		Ready:     a.Monitor.Err,
		Logger:    logger,
		Limiter:   a.limiter,
		Waiters:   func() int { return a.Engine.Waiters() },
		Retention: config.KeyRetention,
		Grace:     config.CompleterGrace,
	})
	a.Engine, err = newEngine(config.Maintenance, a.Pool, a.Metrics.OnStep, logger)
	if err != nil {
		return nil, err
	}
	// A request has no permit while it waits for a provider.
	transport := admission.SuspendDuring(setup.ProviderTransport())
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
	calls := provider.Calls{Payments: a.Payments, Timeout: config.StripeTimeout, Logger: logger}
	a.Services = NewServices(config, a.Engine, a.Pool, calls, transport)
	logger.Info("payment provider", "provider", config.ProviderURL(), "mode", config.Mode())
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

// Services are the operations.
type Services struct {
	Operations *operations.Service
	Orders     *orders.Service
	Refunds    *refunds.Service
}

// NewServices registers all operations. Without calls and a transport, they only describe keys.
func NewServices(
	config setup.App, engine *idempotency.Engine, pool *pgxpool.Pool, calls provider.Calls, transport http.RoundTripper,
) Services {
	s := Services{Operations: operations.New(engine, pool)}
	s.Orders = &orders.Service{Calls: calls, Pool: pool, Engine: engine, ChargeWindow: config.ChargeWindow}
	s.Refunds = &refunds.Service{Calls: calls, Pool: pool, Orders: s.Orders}
	s.Operations.Register(s.Orders.Registration(), s.Refunds.Registration())
	s.Operations.Register(registrations(config, pool, transport)...)
	return s
}

// registrations returns the operations of other packages.
func registrations(setup.App, *pgxpool.Pool, http.RoundTripper) []operations.Registration {
	return nil
}

const (
	// maxWaiters bounds the requests that wait for a key. Each uses 30 KiB.
	maxWaiters = 1000

	// maxInFlight bounds the requests in flight, including those that wait for the provider.
	maxInFlight = 1500

	// maxBacklogWait is how long maxBacklog requests may wait for a permit.
	maxBacklogWait = 650 * time.Millisecond
	maxBacklog     = 1000

	// workPerConnection is the number of permits for each connection: two keep it busy.
	workPerConnection = 2
)

func newEngine(config setup.Maintenance, pool *pgxpool.Pool, onStep idempotency.StepHook, logger *slog.Logger) (*idempotency.Engine, error) {
	return idempotency.New(pool, idempotency.Config{
		LockTimeout: config.LockTimeout,
		Clock:       time.Now,
		Waiters:     maxWaiters,
		OnStep:      onStep,
		Logger:      logger,
	})
}

// OpenEngine is for commands without the provider. The caller closes the pool.
func OpenEngine(ctx context.Context, config setup.Maintenance, logger *slog.Logger) (*pgxpool.Pool, *idempotency.Engine, error) {
	pool, err := setup.Pool(ctx, config.Database, logger)
	if err != nil {
		return nil, nil, err
	}
	engine, err := newEngine(config, pool, nil, logger)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, engine, nil
}
