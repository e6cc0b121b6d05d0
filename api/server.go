package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"example.com/orders-api/idempotency"
)

// NewServer returns a server for [connlimit.Serve], which bounds the time to send a response.
func NewServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),

		// OPTIONS * is logged like any other request.
		DisableGeneralOptionsHandler: true,
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

// Background has a place for each run of respond-async, because a run outlives its client's
// connection.
type Background chan struct{}

// Wait blocks until all runs have ended, or ctx ends, and lets no run begin.
func (b Background) Wait(ctx context.Context) error {
	for range cap(b) {
		select {
		case b <- struct{}{}:
			defer func() { <-b }()
		case <-ctx.Done():
			return fmt.Errorf("background runs: %w", ctx.Err())
		}
	}
	return nil
}

// start begins a run in the background, or returns nil if there are too many.
func (h *handlers) start(ctx context.Context, run func(context.Context) runResult) <-chan runResult {
	select {
	case h.Background <- struct{}{}:
	default:
		return nil
	}
	done := make(chan runResult, 1)
	go func() {
		defer func() { <-h.Background }()
		begun := time.Now()
		entry := &logEntry{}
		result := recovered(ctx, run, entry)
		entry.result(result.Result, result.err)
		if result.err != nil && !errors.Is(result.err, idempotency.ErrActionRequired) && !clientGone(ctx, result.err) {
			entry.problem(problemOf(result.err), result.err)
		}
		h.Logger.LogAttrs(ctx, entry.level, "background run", append([]slog.Attr{
			slog.String("request_id", entryOf(ctx).requestID),
			slog.String("account_id", accountID(ctx).String()),
			slog.String("key_id", result.KeyID.String()),
			slog.Float64("duration_seconds", time.Since(begun).Seconds()),
		}, entry.attrs...)...)
		done <- result
	}()
	return done
}

// recovered turns a panic into an error, because it would end the process.
func recovered(ctx context.Context, run func(context.Context) runResult, entry *logEntry) (result runResult) {
	defer func() {
		if cause := recover(); cause != nil {
			entry.add(slog.String("stack", string(debug.Stack())))
			result.err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return run(ctx)
}
