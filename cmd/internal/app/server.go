package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof" // registers at http.DefaultServeMux, which only the admin listener serves
	"syscall"
	"time"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/internal/accounts"
)

// maxBackground bounds the runs whose clients got a 202.
const maxBackground = 200

// listen opens the address that an environment variable names.
func listen(ctx context.Context, variable, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
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
	runs := make(api.Background, maxBackground)
	authenticator := accounts.NewAuthenticator(a.Pool, time.Now)
	a.Monitor.OnReset(authenticator.Reset)
	if err := a.StartMonitor(ctx); err != nil {
		return nil, err
	}
	ready := api.NewReadiness(a.Monitor.Err)
	router := api.NewRouter(api.Config{
		Engine:        a.Engine,
		Orders:        a.Orders,
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
	server := api.NewServer(router, a.Logger)
	open := make(chan struct{}, connectionLimit(a.Logger)) // further connections wait in the kernel's backlog
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew: // the server calls it before it accepts the next one
			open <- struct{}{}
		case http.StateClosed, http.StateHijacked:
			<-open
		}
	}
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

const (
	// maxConnections bounds the requests in flight, too, because each needs memory while it waits for the
	// provider. The proxy in front keeps slow and idle clients away (docs/overload.md).
	maxConnections = 1500

	// Each connection may need another one, to the provider. The rest is for the database and for logs.
	descriptorsPerConnection, otherDescriptors = 2, 64
)

// connectionLimit returns maxConnections, or what the process may open: a connection to the database
// that fails for want of a descriptor costs more than a client that waits.
func connectionLimit(logger *slog.Logger) int {
	var files syscall.Rlimit
	need := uint64(descriptorsPerConnection*maxConnections + otherDescriptors)
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur >= need {
		return maxConnections
	}
	limit := max(1, (int(files.Cur)-otherDescriptors)/descriptorsPerConnection)
	logger.Warn("RLIMIT_NOFILE is too low, so fewer clients can connect: raise it", "limit", files.Cur, "needed", need, "connections", limit)
	return limit
}

// startAdmin serves metrics, profiles, /healthz and /readyz, unless ADMIN_ADDR is empty. They
// have a port of their own because they require no credentials.
func (a *App) startAdmin(ctx context.Context, ready func() error) error {
	address := a.Config.AdminAddr
	if address == "" {
		return nil
	}
	listener, err := listen(ctx, "ADMIN_ADDR", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.Metrics.Handler())
	mux.Handle("GET /debug/pprof/", http.DefaultServeMux)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(); err != nil {
			a.Logger.WarnContext(r.Context(), "not ready", "error", err)
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(a.Logger.Handler(), slog.LevelDebug),
	}
	go func() { a.Logger.Error("admin listener failed", "error", server.Serve(listener)) }()
	a.Logger.InfoContext(ctx, "serving metrics and profiles", "address", listener.Addr().String())
	return nil
}
