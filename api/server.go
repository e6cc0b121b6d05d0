package api

import (
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
)

// NewServer returns a server whose listener bounds the time to send a part of a response.
func NewServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

var errDraining = errors.New("shutting down")

// Readiness reports whether this process should get traffic. A probe costs nothing, because it
// reads the result of a background check (R25, bounded outsiders).
type Readiness struct {
	check    func() error
	draining atomic.Bool
}

// NewReadiness returns a Readiness.
func NewReadiness(check func() error) *Readiness { return &Readiness{check: check} }

// Drain makes the process not ready from now on, and responses end their connections. Otherwise
// a proxy could send a request on a connection that Shutdown closes.
func (r *Readiness) Drain() { r.draining.Store(true) }

// Check returns nil, or the reason why the process is not ready.
func (r *Readiness) Check() error {
	if r.draining.Load() {
		return errDraining
	}
	return r.check()
}
