package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	_ "net/http/pprof" // registers at http.DefaultServeMux, which only the admin listener serves
	"time"

	"example.com/orders-api/internal/metrics"
)

// startAdmin serves metrics, profiles and, with ready, /readyz, unless ADMIN_ADDR is empty. They
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
	server := &http.Server{
		Handler:           CheckHost(string(address), adminRoutes(a.Metrics, ready, a.Logger)),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute, // longer than the interval of Prometheus's scrapes
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(a.Logger.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.Logger.Error("admin listener failed", "error", err)
		}
	}()
	a.Logger.InfoContext(ctx, "serving metrics and profiles", "address", listener.Addr().String())
	a.onClose(func() { _ = server.Close() })
	return nil
}

func adminRoutes(m *metrics.Metrics, ready func() error, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	if ready != nil {
		mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
			if err := ready(); err != nil {
				logger.WarnContext(r.Context(), "not ready", "error", err)
				http.Error(w, "not ready", http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, "ok\n")
		})
	}
	mux.Handle("GET /metrics", m.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.Handle("GET /debug/pprof/", http.DefaultServeMux)
	return mux
}
