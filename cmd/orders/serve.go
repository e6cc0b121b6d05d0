package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/connlimit"
)

// maxBackground bounds the orders that run in a process after their clients were
// answered 202. At a second each it is as many orders a second.
const maxBackground = 200

// maxConnections bounds the connections of clients, and with them the requests in
// a process: a thousand orders that wait for the provider, a thousand requests that
// wait for those orders, and as many again that are quick or idle. At the limit, a
// new connection closes the one that has been idle for the longest. An idle
// connection takes 20 KiB.
const maxConnections = 4000

// serve runs the API until a signal comes.
func serve(ctx context.Context, call invocation) error {
	var config boot.Serve
	flags := call.flags()
	delay := flags.Duration("shutdown-delay", 2*time.Second,
		"how long a stopping server still accepts requests while /readyz returns 503,\nso that load balancers send new requests elsewhere")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if err := boot.Load(&config); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	tuneGC()
	return withBackend(ctx, config.Database, config.Stripe, config.Durations, logger, func(b *backend) error {
		server, err := newServer(ctx, b, config, logger)
		if err != nil {
			return err
		}
		defer server.close()
		stopAdmin, err := startAdmin(ctx, config.AdminAddr, b.metrics, server.ready.Check, logger)
		if err != nil {
			return err
		}
		defer stopAdmin()
		listener, err := listen(ctx, "LISTEN_ADDR", config.Addr)
		if err != nil {
			return err
		}
		return server.run(ctx, listener, *delay)
	})
}

// tuneGC lets garbage grow to twice the live heap; Go's default is once. That takes
// a few MiB more and saves a twentieth of the CPU time of an order (make bench).
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
}

// listen opens the address of an environment variable before anything is served, so
// that the port is known.
func listen(ctx context.Context, variable, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: another program listens on %s: stop it or choose another address", variable, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return listener, nil
}

// server is the API and how it stops.
type server struct {
	http   *http.Server
	side   *pgxpool.Pool // see boot.SidePool
	ready  *api.Readiness
	engine *idempotency.Engine
	runs   *api.Background
	drain  time.Duration
	logger *slog.Logger
}

// newServer puts the API in front of b, for serve and for dev. Close it after run.
func newServer(ctx context.Context, b *backend, config boot.Serve, logger *slog.Logger) (*server, error) {
	runs, err := api.NewBackground(maxBackground, logger)
	if err != nil {
		return nil, err
	}
	side, err := boot.SidePool(ctx, config.Database, b.traces.ConfigurePool)
	if err != nil {
		return nil, err
	}
	authenticator, err := accounts.NewAuthenticator(accounts.Config{Pool: side, Clock: time.Now})
	if err != nil {
		side.Close()
		return nil, err
	}
	ready := api.NewReadiness(func(ctx context.Context) error { return boot.CheckSchema(ctx, side) })
	s := &server{side: side, ready: ready, engine: b.engine, runs: runs, drain: config.LongestRun(), logger: logger}
	router, err := api.NewRouter(api.Config{
		Orders:        b.orders,
		Authenticator: authenticator,
		Limiter:       b.limiter,
		Spec:          ordersapi.Spec,
		Logger:        logger,

		Observer:   b.metrics.API(),
		Background: runs,
		Retention:  config.KeyRetention.Duration,
		Trace:      b.traces.Requests(),
		Ready:      ready,
	})
	if err != nil {
		side.Close()
		return nil, err
	}
	s.http = api.NewServer(router, config.LongestRun(), logger)
	return s, nil
}

// close closes what newServer opened.
func (s *server) close() { s.side.Close() }

// run serves until ctx ends. Then it is not ready any more but continues for delay.
// After that it accepts no new connections, drains the waiters and lets runs in
// progress finish, so that their clients get a response and no other process has to
// take their keys over.
func (s *server) run(ctx context.Context, listener net.Listener, delay time.Duration) error {
	served := make(chan error, 1)
	go func() { served <- connlimit.Serve(s.http, listener, maxConnections) }()
	s.logger.Info("listening", "address", listener.Addr().String())
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.ready.Drain()
	s.logger.Info("stopping: not ready any more, runs in progress finish", "shutdown_delay", delay, "then_at_most", s.drain)
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-time.After(delay):
	}
	drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	s.engine.DrainWaiters()
	err := s.http.Shutdown(drainCtx)
	if err == nil {
		err = s.runs.Wait(drainCtx) // those whose clients are gone with a 202
	}
	if err != nil {
		return fmt.Errorf("stopped with orders still running; their keys will be taken over: %w", err)
	}
	s.logger.Info("stopped")
	return nil
}
