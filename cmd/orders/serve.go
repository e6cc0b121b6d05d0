package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

// serve is the command: the API until a signal comes.
func serve(ctx context.Context, args []string, _, stderr io.Writer) error {
	if err := parse(flag.NewFlagSet("serve", flag.ContinueOnError), args, stderr); err != nil {
		return err
	}
	var config boot.Serve
	if err := boot.Load(&config); err != nil {
		return err
	}
	logger := config.Logger(stderr)
	pool, err := boot.Pool(ctx, config.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	server, err := newServer(config, pool, logger)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", config.Addr)
	if err != nil {
		return fmt.Errorf("LISTEN_ADDR: %w", err)
	}
	return server.run(ctx, listener)
}

// server is the API with everything behind it.
type server struct {
	http     *http.Server
	payments *payments.Client
	drain    time.Duration
	draining atomic.Bool
	logger   *slog.Logger
}

// newServer wires the API. serve, dev and the tests all use this wiring.
func newServer(config boot.Serve, pool *pgxpool.Pool, logger *slog.Logger) (*server, error) {
	client, err := payments.New(payments.Config{
		SecretKey: string(config.SecretKey),
		BaseURL:   config.APIBase,
		Timeout:   config.Stripe.Timeout.Duration,
		Logger:    logger,
	})
	if err != nil {
		return nil, err
	}
	engine, err := idempotency.New(pool, idempotency.Config{
		LockTimeout: config.LockTimeout.Duration,
		Clock:       time.Now,
		Logger:      logger,
	})
	if err != nil {
		return nil, err
	}
	service, err := orders.New(orders.Config{
		Engine:      engine,
		Pool:        pool,
		Payments:    client,
		StepTimeout: config.Stripe.Timeout.Duration,
		Logger:      logger,
	})
	if err != nil {
		return nil, err
	}
	s := &server{payments: client, drain: config.LongestRun(), logger: logger}
	router, err := api.NewRouter(api.Config{
		Orders: service,
		Pool:   pool,
		Spec:   ordersapi.Spec,
		Logger: logger,
		Ready: func(ctx context.Context) error {
			if s.draining.Load() {
				return errors.New("shutting down")
			}
			return boot.CheckSchema(ctx, pool)
		},
	})
	if err != nil {
		return nil, err
	}
	s.http = api.NewServer(router, config.LongestRun(), logger)
	return s, nil
}

// run serves until ctx ends, and then lets running orders finish: their clients
// get an answer, and nobody has to take them over.
func (s *server) run(ctx context.Context, listener net.Listener) error {
	defer s.payments.Close()
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	s.logger.Info("listening", "address", listener.Addr().String())
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	s.logger.Info("stopping; running orders finish first", "at_most", s.drain)
	drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	if err := s.http.Shutdown(drainCtx); err != nil {
		return fmt.Errorf("stopped with orders still running; their keys will be taken over: %w", err)
	}
	s.logger.Info("stopped")
	return nil
}
