package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/connlimit"
	"example.com/orders-api/orders/webhooks"
)

// maxBackground bounds the runs whose clients got a 202.
const maxBackground = 200

// maxConnections includes idle connections, with 20 KiB each. At the limit, a new one closes
// another, see [connlimit].
const maxConnections = 4000

func serve(ctx context.Context, call *invocation) error {
	var config struct {
		setup.App
		setup.Listen
		setup.Admin
	}
	delay := call.flags.Duration("shutdown-delay", 2*time.Second,
		"how long a stopping server still accepts requests while /readyz returns 503,\nso that load balancers send new requests elsewhere")
	if err := call.load(&config); err != nil {
		return err
	}
	logger := config.Logger(call.stderr)
	tuneGC()
	a, err := newApp(ctx, config.App, logger)
	if err != nil {
		return err
	}
	defer a.close()
	if err := setup.WarnOfLoss(ctx, a.pool, logger); err != nil {
		return err
	}
	s, err := openServer(ctx, a, config.Addr, config.AdminAddr)
	if err != nil {
		return err
	}
	return s.run(ctx, *delay)
}

// tuneGC saves 5 % of the CPU time per order, and keeps the process below 128 MiB with
// maxConnections. GOGC and GOMEMLIMIT override this.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(100 << 20)
	}
}

// listen opens the address that an environment variable names.
func listen(ctx context.Context, variable string, address setup.Address) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", string(address))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: another program, or another address of this one, uses %s: stop it or choose another address", variable, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return listener, nil
}

type server struct {
	*app
	http     *http.Server
	listener net.Listener
	ready    *api.Readiness
	runs     *api.Background
}

// openServer opens the addresses until the app closes.
func openServer(ctx context.Context, a *app, address, adminAddress setup.Address) (*server, error) {
	authPool, err := setup.AuthPool(ctx, a.pool)
	if err != nil {
		return nil, err
	}
	a.onClose(authPool.Close)
	if err := setup.CheckServing(ctx, a.pool); err != nil {
		return nil, err
	}
	runs := api.NewBackground(maxBackground, a.logger)
	authenticator := accounts.NewAuthenticator(authPool, time.Now)
	a.monitor.Add(authPool, authenticator.Reset)
	if err := a.startMonitor(ctx, setup.CheckServing); err != nil {
		return nil, err
	}
	ready := api.NewReadiness(a.monitor.Err)
	router := api.NewRouter(api.Config{
		Engine:        a.engine,
		Operations:    a.operations,
		Webhooks:      webhooks.Handler{Payments: a.payments, Operations: a.operations, Refunds: a.refunds},
		Authenticator: authenticator,
		Limiter:       a.limiter,
		Spec:          ordersapi.Spec,
		Workflows:     ordersapi.Workflows,
		Logger:        a.logger,
		OnRequest:     a.metrics.OnRequest,
		Background:    runs,
		Retention:     a.config.KeyRetention,
		Ready:         ready,
	})
	stopAdmin, err := startAdmin(ctx, adminAddress, a.metrics, ready.Check, a.logger)
	if err != nil {
		return nil, err
	}
	a.onClose(stopAdmin)
	listener, err := listen(ctx, "LISTEN_ADDR", address)
	if err != nil {
		return nil, err
	}
	a.onClose(func() { _ = listener.Close() }) // closed already if run was called
	return &server{a, api.NewServer(router, a.logger), listener, ready, runs}, nil
}

// run serves until ctx ends, or until the provider rejects its key, which is tried meanwhile,
// because a provider that hangs must not delay replays. Then /readyz returns 503, and requests
// are accepted for delay. After that, waiters are released and runs finish, so that no other
// process takes over.
func (s *server) run(ctx context.Context, delay time.Duration) error {
	served, rejected := make(chan error, 1), make(chan error, 1)
	go func() { served <- connlimit.Serve(s.http, s.listener, maxConnections) }()
	s.logger.Info("listening", "address", s.listener.Addr().String())
	go func() {
		if err := setup.TryProvider(ctx, s.payments, s.logger); err != nil {
			rejected <- err
		}
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case err := <-rejected:
		return err
	case <-ctx.Done():
	}
	s.ready.Drain()
	drain := s.config.LongestRun()
	s.logger.Info("stopping: not ready, finishing runs in progress",
		"shutdown_delay_seconds", delay.Seconds(), "drain_timeout_seconds", drain.Seconds())
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-time.After(delay):
	}
	drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
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

// healthcheck is for containers, because the image has no shell. It uses no proxy and follows
// no redirects, so that no other server responds.
func healthcheck(ctx context.Context, call *invocation) error {
	var config setup.Listen
	timeout := call.flags.Duration("timeout", 3*time.Second, "how long to wait for the response")
	if err := call.load(&config, "timeout"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	target := baseURL(string(config.Addr), "127.0.0.1") + "/readyz" // an empty image does not resolve localhost
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	response, err := new(http.Transport).RoundTrip(request)
	if err != nil {
		return fmt.Errorf("not healthy: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not healthy: %s returned %s", target, response.Status)
	}
	return nil
}

// baseURL returns the URL of a listener for a client on this machine, which loopback names.
func baseURL(address, loopback string) string {
	host, port, _ := net.SplitHostPort(address) // valid
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = loopback
	}
	return "http://" + net.JoinHostPort(host, port)
}
