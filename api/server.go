package api

import (
	"log/slog"
	"net/http"
	"time"
)

// Bounds of what a request waits for.
const (
	// bodyTimeout bounds the reading of a request, head and body: 64 KiB over a
	// slow line, or 256 over the provider's.
	bodyTimeout = 15 * time.Second

	// readTimeout bounds what a request reads from the database, the wait for a
	// connection included. An order's own work is not bound by it (R10).
	readTimeout = 5 * time.Second

	// answerTimeout is what is left for the client to take the answer.
	answerTimeout = 10 * time.Second
)

// NewServer returns a server for the API with every timeout set. longestRun is
// how long an order may take when the provider is slow: an answer that is
// being made must not be cut off, nor one that was waited for before.
func NewServer(handler http.Handler, longestRun time.Duration, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      bodyTimeout + readTimeout + maxWait + longestRun + answerTimeout, // counts from the end of the head
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),

		// OPTIONS * is answered, and logged, as everything else.
		DisableGeneralOptionsHandler: true,
	}
}
