package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/tracing"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/limiter"
	"example.com/orders-api/internal/metrics"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// app holds the services of every command that runs operations.
type app struct {
	config  boot.App
	logger  *slog.Logger
	pool    *pgxpool.Pool // closed by withApp
	traces  *tracing.Tracing
	limiter *limiter.Limiter
	metrics *metrics.Metrics
	engine  *idempotency.Engine
	orders  *orders.Service
}

// withApp connects to the database and calls work with the services.
func withApp(ctx context.Context, config boot.App, logger *slog.Logger, work func(*app) error) error {
	traces, err := tracing.Start(ctx, logger)
	if err != nil {
		return err
	}
	defer traces.Stop(ctx) // last, so that all spans are sent
	pool, err := boot.Pool(ctx, config.Database, logger, traces.ConfigurePool)
	if err != nil {
		return err
	}
	defer pool.Close()
	admission, err := limiter.New(limiter.Config{
		Work:     workPerConnection * int(pool.Config().MaxConns),
		Backlog:  maxBacklog,
		Wait:     maxBacklogWait,
		InFlight: maxInFlight,
	})
	if err != nil {
		return err
	}
	var engine *idempotency.Engine // made below, because it uses the metrics
	m, err := metrics.New(metrics.Config{
		Pool:      pool,
		Logger:    logger,
		Limiter:   admission,
		Waiters:   func() int { return engine.Waiters() },
		Retention: config.KeyRetention,
		Grace:     config.CompleterGrace,
	})
	if err != nil {
		return err
	}
	transport := limiter.Transport(traces.Provider(boot.ProviderTransport()))
	client, err := payments.New(payments.Config{
		SecretKey:     string(config.SecretKey),
		WebhookSecret: string(config.WebhookSecret),
		BaseURL:       config.APIBase,
		Timeout:       config.StripeTimeout,
		Transport:     transport,
		Observe:       m.ProviderAttempt,
		Logger:        logger,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	engine, err = newEngine(config.Maintenance, pool, traces.OnStep(m.OnStep), logger)
	if err != nil {
		return err
	}
	service, err := orders.New(orders.Config{
		Engine:        engine,
		Pool:          pool,
		Payments:      client,
		StepTimeout:   config.StripeTimeout,
		ChargeWindow:  config.ChargeWindow,
		Logger:        logger,
		Registrations: registrations(config, pool, transport),
	})
	if err != nil {
		return err
	}
	logger.Info("payment provider", "provider", config.ProviderURL(), "mode", config.Mode())
	return work(&app{config, logger, pool, traces, admission, m, engine, service})
}

// registrations returns the operations of other packages. Commands without access to a
// provider only describe the keys of these operations: their transport is nil.
func registrations(boot.App, *pgxpool.Pool, http.RoundTripper) orders.Registrations { return nil }

const (
	// maxWaiters bounds the requests that wait for a key in progress. Each uses a client
	// connection and about 30 KiB of memory.
	maxWaiters = 1000

	// maxInFlight bounds the requests in flight, including those that wait for the
	// provider. Each uses as much memory as a waiter.
	maxInFlight = 1500

	// maxBacklogWait is how long a new request may wait for a permit, and maxBacklog how
	// many may wait.
	maxBacklogWait = 650 * time.Millisecond
	maxBacklog     = 1000

	// workPerConnection is the number of permits for each connection of the pool. Two keep
	// the processors and the connections busy.
	workPerConnection = 2
)

func newEngine(config boot.Maintenance, pool *pgxpool.Pool, onStep idempotency.StepHook, logger *slog.Logger) (*idempotency.Engine, error) {
	return idempotency.New(pool, idempotency.Config{
		LockTimeout: config.LockTimeout,
		Clock:       time.Now,
		Waiters:     maxWaiters,
		OnStep:      onStep,
		Logger:      logger,
	})
}

// withEngine is withApp for commands that do not need the provider.
func withEngine(ctx context.Context, config boot.Maintenance, logger *slog.Logger, work func(*idempotency.Engine, *pgxpool.Pool) error) error {
	pool, err := boot.Pool(ctx, config.Database, logger)
	if err != nil {
		return err
	}
	defer pool.Close()
	engine, err := newEngine(config, pool, nil, logger)
	if err != nil {
		return err
	}
	return work(engine, pool)
}
