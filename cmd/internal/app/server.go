package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/internal/accounts"
)

// maxBackground bounds the runs whose clients got a 202.
const maxBackground = 200

// listen opens the address that an environment variable names.
func listen(ctx context.Context, variable string, address Address) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", string(address))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return listener, nil
}

// Server is the API and, unless it has no address, the admin listener.
type Server struct {
	App      *App
	HTTP     *http.Server
	Listener net.Listener

	ready *api.Readiness
	runs  api.Background
}

// Listen opens the addresses until the app closes.
func (a *App) Listen(ctx context.Context) (*Server, error) {
	if err := CheckServing(ctx, a.Pool); err != nil {
		return nil, err
	}
	runs := make(api.Background, maxBackground)
	authenticator := accounts.NewAuthenticator(a.Pool, time.Now)
	a.Monitor.OnReset(authenticator.Reset)
	if err := a.StartMonitor(ctx, CheckServing); err != nil {
		return nil, err
	}
	ready := api.NewReadiness(a.Monitor.Err)
	router := api.NewRouter(api.Config{
		Engine:        a.Engine,
		Orders:        a.Orders,
		Refunds:       a.Refunds,
		Changes:       a.Changes,
		Authenticator: authenticator,
		Limiter:       a.limiter,
		Spec:          ordersapi.Spec,
		Logger:        a.Logger,
		OnRequest:     a.Metrics.OnRequest,
		Background:    runs,
		Retention:     a.Config.KeyRetention,
		Ready:         ready,
		Own:           a.ownRoutes,
	})
	if err := a.startAdmin(ctx, ready.Check); err != nil {
		return nil, err
	}
	listener, err := listen(ctx, "LISTEN_ADDR", a.Config.ListenAddr)
	if err != nil {
		return nil, err
	}
	a.onClose(func() { _ = listener.Close() }) // closed already if Run was called
	server := api.NewServer(router, a.Logger)
	server.ConnState = limitConnections(connectionLimit(a.Logger))
	server.WriteTimeout = a.Config.LongestRun() + 2*time.Minute // for a wait, a search at the provider, and a slow client
	return &Server{App: a, HTTP: server, Listener: listener, ready: ready, runs: runs}, nil
}

// Run serves until ctx ends, or until the provider rejects its key. The key is tried while requests are
// served, because a provider that does not answer must not delay replays. When ctx ends, /readyz returns
// 503, and requests are still accepted for delay. Then waiters are released and runs finish, so that no
// other process has to take over their keys.
func (s *Server) Run(ctx context.Context, delay time.Duration) error {
	serving, fail := context.WithCancelCause(ctx)
	go func() { fail(s.HTTP.Serve(s.Listener)) }()
	s.App.Logger.Info("listening", "address", s.Listener.Addr().String())
	go func() {
		if err := s.App.TryProvider(ctx); err != nil {
			fail(err)
		}
	}()
	<-serving.Done()
	var failed error
	if ctx.Err() == nil {
		failed, delay = context.Cause(serving), 0
	}
	s.ready.Drain()
	drain := s.App.Config.LongestRun()
	s.App.Logger.Info("stopping: not ready, finishing runs in progress",
		"shutdown_delay_seconds", delay.Seconds(), "drain_timeout_seconds", drain.Seconds())
	<-time.After(delay)
	drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	s.App.Engine.DrainWaiters()
	err := s.HTTP.Shutdown(drainCtx)
	if err == nil {
		err = s.runs.Wait(drainCtx)
	}
	if err != nil {
		return errors.Join(failed, fmt.Errorf("stopped during runs; their keys will be taken over: %w", err))
	}
	s.App.Logger.Info("stopped")
	return failed
}

// BaseURL returns the URL of a listener for a client on this machine. loopback replaces an unspecified
// host.
func BaseURL(address, loopback string) string {
	host, port, _ := net.SplitHostPort(address) // valid
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = loopback
	}
	return (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}).String()
}
