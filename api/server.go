package api

import (
	"log/slog"
	"net/http"
	"time"
)

// Timeouts of a request.
const (
	// bodyTimeout bounds the reading of a request: 64 KiB over a slow connection.
	bodyTimeout = 15 * time.Second

	// readTimeout bounds a read of the database. It does not apply to an order (R10).
	readTimeout = 5 * time.Second

	// responseTimeout is the client's time to read the response.
	responseTimeout = 10 * time.Second
)

// NewServer returns a server with all timeouts. longestRun is the longest run of an
// order. The write timeout exceeds a wait and a run.
func NewServer(handler http.Handler, longestRun time.Duration, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      bodyTimeout + readTimeout + maxWait + longestRun + responseTimeout, // starts after the headers
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),

		// OPTIONS * is handled and logged like any other request.
		DisableGeneralOptionsHandler: true,
	}
}
