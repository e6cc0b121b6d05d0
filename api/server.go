package api

import (
	"log/slog"
	"net/http"
	"time"
)

// Timeouts of a request.
const (
	bodyTimeout     = 15 * time.Second // to receive it
	readTimeout     = 5 * time.Second  // of a GET's queries
	responseTimeout = 10 * time.Second // to send the response
)

// NewServer returns a server. longestRun is that of an order.
func NewServer(handler http.Handler, longestRun time.Duration, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      bodyTimeout + readTimeout + maxWait + longestRun + responseTimeout, // starts after the headers
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),

		// OPTIONS * is logged like any other request.
		DisableGeneralOptionsHandler: true,
	}
}
