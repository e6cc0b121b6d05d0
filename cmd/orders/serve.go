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

// maxBackground bounds the runs whose clients got a 202.
const maxBackground = 200

// maxConnections bounds the client connections: those of maxInFlight and maxWaiters, and
// the rest for short requests and idle connections. At the limit, a new connection closes
// the longest idle one. An idle connection uses 20 KiB.
const maxConnections = 4000

func serve(ctx context.Context, call invocation) error {
	var config boot.Serve
	flags := call.flags()
	delay := flags.Duration("shutdown-delay", 2*time.Second,
		"how long a stopping server still accepts requests while /readyz returns 503,\nso that load balancers send new requests elsewhere")
	if err := call.load(flags, &config); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	tuneGC()
	return withApp(ctx, config.Database, config.Stripe, config.Durations, logger, func(a *app) error {
		server, err := newServer(ctx, a, config.Database, config.Durations, logger)
		if err != nil {
			return err
		}
		defer server.close()
		stopAdmin, err := startAdmin(ctx, config.AdminAddr, a.metrics, server.ready.Check, logger)
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

// tuneGC saves 5 % of the CPU time per order (make bench). The heap grows to three times
// what is in use, but not beyond 96 MiB unless more is in use. GOGC and GOMEMLIMIT
// override this.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(96 << 20)
	}
}

// listen opens the address that an environment variable names.
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

// server is the API server.
type server struct {
	http   *http.Server
	side   *pgxpool.Pool // see boot.SidePool
	ready  *api.Readiness
	engine *idempotency.Engine
	runs   *api.Background
	drain  time.Duration
	logger *slog.Logger
}

// newServer returns the API of an app, for serve and for dev. Close it after run.
func newServer(ctx context.Context, a *app, database boot.Database, durations boot.Durations, logger *slog.Logger) (*server, error) {
	runs, err := api.NewBackground(maxBackground, logger)
	if err != nil {
		return nil, err
	}
	side, err := boot.SidePool(ctx, database, a.traces.ConfigurePool)
	if err != nil {
		return nil, err
	}
	authenticator, err := accounts.NewAuthenticator(accounts.Config{Pool: side, Clock: time.Now})
	if err != nil {
		side.Close()
		return nil, err
	}
	ready := api.NewReadiness(func(ctx context.Context) error { return boot.CheckSchema(ctx, side) })
	s := &server{side: side, ready: ready, engine: a.engine, runs: runs, drain: durations.LongestRun(), logger: logger}
	router, err := api.NewRouter(api.Config{
		Orders:        a.orders,
		Authenticator: authenticator,
		Limiter:       a.limiter,
		Spec:          ordersapi.Spec,
		Logger:        logger,

		Observer:   a.metrics.API(),
		Background: runs,
		Retention:  durations.KeyRetention.Duration,
		Trace:      a.traces.Requests(),
		Ready:      ready,
	})
	if err != nil {
		side.Close()
		return nil, err
	}
	s.http = api.NewServer(router, durations.LongestRun(), logger)
	return s, nil
}

func (s *server) close() { s.side.Close() }

// run serves until ctx ends. Then /readyz returns 503 for delay, while requests are still
// accepted. After that it closes the listener, releases the waiters and lets runs in
// progress finish, so that no other process has to take over their keys.
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
	s.logger.Info("stopping: not ready, finishing runs in progress", "shutdown_delay", delay, "drain_timeout", s.drain)
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
		err = s.runs.Wait(drainCtx)
	}
	if err != nil {
		return fmt.Errorf("stopped during runs; their keys will be taken over: %w", err)
	}
	s.logger.Info("stopped")
	return nil
}
