package main

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

// app holds the services of every command that runs operations.
type app struct {
	config  setup.App
	logger  *slog.Logger
	pool    *pgxpool.Pool
	monitor *postgres.Monitor
	limiter *admission.Limiter
	metrics *metrics.Metrics
	engine  *idempotency.Engine
	closing []func()

	services
	payments *payments.Client
}

// openApp creates the app of a command that calls the provider first of all, so it tries the
// provider's key.
func openApp(ctx context.Context, config setup.App, logger *slog.Logger) (*app, error) {
	a, err := newApp(ctx, config, logger)
	if err != nil {
		return nil, err
	}
	if err := setup.TryProvider(ctx, a.payments, logger); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// newApp connects to the database and creates the services. The caller closes the app.
func newApp(ctx context.Context, config setup.App, logger *slog.Logger) (_ *app, err error) {
	a := &app{config: config, logger: logger}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if a.pool, err = setup.Pool(ctx, config.Database, logger); err != nil {
		return nil, err
	}
	a.onClose(a.pool.Close)
	a.monitor = postgres.NewMonitor(a.pool, logger)
	a.limiter, err = admission.New(admission.Config{
		Work:     workPerConnection * int(a.pool.Config().MaxConns),
		Backlog:  maxBacklog,
		Wait:     maxBacklogWait,
		InFlight: maxInFlight,
	})
	if err != nil {
		return nil, err
	}
	a.metrics = metrics.New(metrics.Config{
		Pool:      a.pool,
		Ready:     a.monitor.Err,
		Logger:    logger,
		Jobs:      receiptGauges,
		Limiter:   a.limiter,
		Waiters:   func() int { return a.engine.Waiters() },
		Retention: config.KeyRetention,
		Grace:     config.CompleterGrace,
	})
	a.engine, err = newEngine(config.Maintenance, a.pool, a.metrics.OnStep, logger)
	if err != nil {
		return nil, err
	}
	// A request has no permit while it waits for a provider.
	transport := admission.SuspendDuring(setup.ProviderTransport())
	a.payments = payments.New(payments.Config{
		SecretKey:     string(config.SecretKey),
		WebhookSecret: string(config.WebhookSecret),
		BaseURL:       config.APIBase,
		Timeout:       config.StripeTimeout,
		Transport:     transport,
		Observe:       a.metrics.ProviderAttempt,
		Logger:        logger,
	})
	a.onClose(a.payments.Close)
	calls := provider.Calls{Payments: a.payments, Timeout: config.StripeTimeout, Logger: logger}
	a.services = newServices(config, a.engine, a.pool, calls, transport)
	logger.Info("payment provider", "provider", config.ProviderURL(), "mode", config.Mode())
	return a, nil
}

// startMonitor starts the monitor until the app closes.
func (a *app) startMonitor(ctx context.Context, check func(context.Context, *pgxpool.Pool) error) error {
	stop, err := a.monitor.Start(ctx, check)
	if err == nil {
		a.onClose(stop)
	}
	return err
}

func (a *app) onClose(closing func()) { a.closing = append(a.closing, closing) }

// close calls the functions of onClose, the newest first.
func (a *app) close() {
	for _, closing := range slices.Backward(a.closing) {
		closing()
	}
}

type services struct {
	operations *operations.Service
	orders     *orders.Service
	refunds    *refunds.Service
}

// newServices registers all operations. Without calls and a transport, they only describe keys.
func newServices(
	config setup.App, engine *idempotency.Engine, pool *pgxpool.Pool, calls provider.Calls, transport http.RoundTripper,
) services {
	s := services{operations: operations.New(engine, pool)}
	s.orders = &orders.Service{Calls: calls, Pool: pool, Engine: engine, ChargeWindow: config.ChargeWindow}
	s.refunds = &refunds.Service{Calls: calls, Pool: pool, Orders: s.orders}
	s.operations.Register(s.orders.Registration(), s.refunds.Registration())
	s.operations.Register(registrations(config, pool, transport)...)
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

// openEngine is for commands without the provider. The caller closes the pool.
func openEngine(ctx context.Context, config setup.Maintenance, logger *slog.Logger) (*pgxpool.Pool, *idempotency.Engine, error) {
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
