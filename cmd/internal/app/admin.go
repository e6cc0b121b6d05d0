package app

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof" // registers at http.DefaultServeMux, which only the admin listener serves
	"os"
	"regexp"
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
		Handler:           CheckHost(address, mux),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute, // longer than the interval of Prometheus's scrapes
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(a.Logger.Handler(), slog.LevelDebug),
	}
	go func() { a.Logger.Error("admin listener failed", "error", server.Serve(listener)) }()
	a.Logger.InfoContext(ctx, "serving metrics and profiles", "address", listener.Addr().String())
	return nil
}

// privateHost matches an address, a name without a dot, and those of this machine and of Kubernetes.
const privateHost = `[^.:]*|\d+(\.\d+){3}|\[[[:xdigit:]:.]*\]|[^:]*\.(localhost|svc|cluster\.local)`

// CheckHost is for listeners that require no credentials. It rejects a Host that could be in the public
// DNS, unless it is the name of this machine or the host of address, where the listener is. Otherwise a
// page on the internet could read their responses by DNS rebinding.
func CheckHost(address string, next http.Handler) http.Handler {
	machine, _ := os.Hostname() // "" if unknown, which is accepted in any case
	named, _, _ := net.SplitHostPort(address)
	accepted := regexp.MustCompile(`(?i)^(` + privateHost + `|` + regexp.QuoteMeta(machine) + `|` + regexp.QuoteMeta(named) + `)\.?(:\d+)?$`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !accepted.MatchString(r.Host) {
			http.Error(w, "Unknown host name: use an IP address, or listen on an address with this name.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
