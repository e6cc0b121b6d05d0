package api

import (
	"log/slog"
	"net/http"
	"time"
)

// NewServer returns a server for the API with every timeout set. longestRun is
// how long an order may take when the provider is slow: an answer that is
// being made must not be cut off.
func NewServer(handler http.Handler, longestRun time.Duration, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second, // a 64 KiB body over a slow line
		WriteTimeout:      longestRun + 15*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}
