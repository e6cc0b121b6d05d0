package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/cmd/internal/tracing"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/metrics"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// backend is what every command that makes orders, or goes on with them, works
// with: the API, the completer, an operator.
type backend struct {
	pool     *pgxpool.Pool // its owner closes it
	traces   *tracing.Tracing
	reads    *idempotency.Gate
	metrics  *metrics.Metrics // counts in any case, whether somebody may look or not
	engine   *idempotency.Engine
	payments *payments.Client
	orders   *orders.Service
}

func newBackend(
	stripe boot.Stripe, durations boot.Durations, pool *pgxpool.Pool, traces *tracing.Tracing, logger *slog.Logger,
) (*backend, error) {
	runs, err := newGate(pool, runsPerConnection, maxCalls)
	if err != nil {
		return nil, err
	}
	reads, err := newGate(pool, readsPerConnection, maxWaiters)
	if err != nil {
		return nil, err
	}
	m, err := metrics.New(metrics.Config{
		Pool:      pool,
		Logger:    logger,
		Clock:     time.Now,
		Runs:      runs,
		Reads:     reads,
		Retention: durations.KeyRetention.Duration,
		Grace:     durations.CompleterGrace.Duration,
	})
	if err != nil {
		return nil, err
	}
	client, err := payments.New(payments.Config{
		SecretKey:     string(stripe.SecretKey),
		WebhookSecret: string(stripe.WebhookSecret),
		BaseURL:       stripe.APIBase,
		Timeout:       durations.StripeTimeout.Duration,
		Transport:     traces.Provider(),
		Observe:       m.Exchange,
		Logger:        logger,
	})
	if err != nil {
		return nil, err
	}
	engine, err := newEngine(durations, pool, runs, reads, m.Phase, traces.Engine(), logger)
	if err != nil {
		return nil, err
	}
	service, err := orders.New(orders.Config{
		Engine:      engine,
		Pool:        pool,
		Payments:    client,
		StepTimeout: durations.StripeTimeout.Duration,
		Logger:      logger,
	})
	if err != nil {
		return nil, err
	}
	logger.Info("cards are charged", "by", stripe.Provider())
	return &backend{pool: pool, traces: traces, reads: reads, metrics: m, engine: engine, payments: client, orders: service}, nil
}

// maxWaiters bounds who waits in a process for a key that is in use. Each costs a
// connection of a client and some memory, 30 KiB or so, and nothing else.
const maxWaiters = 1000

// maxCalls bounds the orders and refunds that wait for the provider in a process.
// Each costs as much as a waiter.
const maxCalls = 1000

// How many may be at work at once for each connection of the pool. A quarter of
// the runs is enough to keep the database busy, and all that are let in when there
// is too much to do (see idempotency.Gate). Reads take a tenth of the time, and
// are turned away after runs.
const (
	runsPerConnection  = 8
	readsPerConnection = 32
)

// newGate returns a gate as wide as the pool, behind which so many may step aside.
func newGate(pool *pgxpool.Pool, perConnection, aside int) (*idempotency.Gate, error) {
	places := perConnection * int(pool.Config().MaxConns)
	return idempotency.NewGate(places, places+aside)
}

func newEngine(
	durations boot.Durations, pool *pgxpool.Pool, runs, reads *idempotency.Gate,
	observe func(idempotency.Phase), tracer idempotency.Tracer, logger *slog.Logger,
) (*idempotency.Engine, error) {
	return idempotency.New(pool, idempotency.Config{
		LockTimeout: durations.LockTimeout.Duration,
		Clock:       time.Now,
		Waiters:     maxWaiters,
		Runs:        runs,
		Reads:       reads,
		Observe:     observe,
		Tracer:      tracer,
		Logger:      logger,
	})
}

// withBackend connects, and hands a backend to work.
func withBackend(
	ctx context.Context, database boot.Database, stripe boot.Stripe, durations boot.Durations, logger *slog.Logger,
	work func(*backend) error,
) error {
	traces, err := tracing.Start(ctx, logger)
	if err != nil {
		return err
	}
	defer traces.Stop(ctx) // behind all that makes spans
	pool, err := boot.Pool(ctx, database, logger, traces.ConfigurePool)
	if err != nil {
		return err
	}
	defer pool.Close()
	b, err := newBackend(stripe, durations, pool, traces, logger)
	if err != nil {
		return err
	}
	defer b.payments.Close()
	return work(b)
}

// openAuthenticator returns the API's Authenticator, and a function that closes its
// pool. The pool is not the orders' one: the lookups of unknown API keys must not
// use that (R25).
func openAuthenticator(
	ctx context.Context, database boot.Database, traces *tracing.Tracing, logger *slog.Logger,
) (authenticator *accounts.Authenticator, closePool func(), err error) {
	pool, err := boot.Connect(ctx, database, logger, traces.ConfigurePool, func(config *pgxpool.Config) {
		config.MaxConns, config.MinConns, config.MinIdleConns = accounts.Connections, 0, 0
	})
	if err != nil {
		return nil, nil, err
	}
	authenticator, err = accounts.NewAuthenticator(accounts.Config{Pool: pool, Clock: time.Now})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return authenticator, pool.Close, nil
}

// withEngine connects, and hands work what needs no provider.
func withEngine(ctx context.Context, config boot.Upkeep, logger *slog.Logger, work func(*idempotency.Engine, *pgxpool.Pool) error) error {
	pool, err := boot.Pool(ctx, config.Database, logger)
	if err != nil {
		return err
	}
	defer pool.Close()
	engine, err := newEngine(config.Durations, pool, nil, nil, nil, nil, logger)
	if err != nil {
		return err
	}
	return work(engine, pool)
}
