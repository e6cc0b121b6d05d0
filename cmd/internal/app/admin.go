package app

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	_ "net/http/pprof" // registers at http.DefaultServeMux, which only the admin listener serves
	"time"
)

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
