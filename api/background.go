package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"example.com/orders-api/idempotency"
)

// Background holds the runs of respond-async (RFC 7240), whose number no connection bounds.
type Background struct {
	slots  chan struct{}
	logger *slog.Logger
}

// NewBackground returns a Background for up to limit runs at once.
func NewBackground(limit int, logger *slog.Logger) *Background {
	return &Background{slots: make(chan struct{}, limit), logger: logger}
}

// Wait blocks until all runs have ended, or ctx ends, and lets no run begin. A retry or the
// completer takes over a run that has not ended.
func (b *Background) Wait(ctx context.Context) error {
	for range cap(b.slots) {
		select {
		case b.slots <- struct{}{}:
			defer func() { <-b.slots }()
		case <-ctx.Done():
			return fmt.Errorf("background runs: %w", ctx.Err())
		}
	}
	return nil
}

// start begins a run, or returns nil if there are too many. The channel need not be read.
func (b *Background) start(ctx context.Context, run func(context.Context) runResult) <-chan runResult {
	select {
	case b.slots <- struct{}{}:
	default:
		return nil
	}
	done := make(chan runResult, 1)
	go func() {
		defer func() { <-b.slots }()
		begun := time.Now()
		entry := &logEntry{}
		result := recovered(ctx, run, entry)
		entry.result(result.Result, result.err)
		if result.err != nil && !errors.Is(result.err, idempotency.ErrActionRequired) {
			entry.problem(ctx, problemOf(result.err), result.err)
		}
		b.logger.LogAttrs(ctx, entry.level, "background run", append([]slog.Attr{
			slog.String("request_id", entryOf(ctx).requestID),
			slog.String("account_id", accountID(ctx).String()),
			slog.String("key_id", result.KeyID.String()),
			slog.Duration("duration", time.Since(begun)),
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

// serveAsync executes the request in the background. It responds with the result if the
// client's wait suffices, otherwise with 202 once the claim is durable.
func (a accountAPI) serveAsync(w http.ResponseWriter, r *http.Request, req idempotentRequest) error {
	claimed := make(chan struct{})
	claiming := req
	claiming.OnClaim = sync.OnceFunc(func() { close(claimed) })
	done := a.background.start(r.Context(), func(ctx context.Context) runResult {
		return a.run(ctx, claiming)
	})
	if done == nil {
		return a.writeRunResult(w, r, req.Key, a.run(r.Context(), req))
	}
	run, ended := awaitRun(claimed, done, req.prefer.wait)
	switch {
	case !ended:
		return a.writeAccepted(w, r, req.Key, req.prefer, nil)
	case errors.Is(run.err, idempotency.ErrInProgress) && run.Attempt > 0: // claimed by another run
		return a.writeAccepted(w, r, req.Key, preferences{respondAsync: true, wait: run.waited}, nil)
	default:
		return a.writeRunResult(w, r, req.Key, run)
	}
}

// awaitRun waits for the end of a run, but only for up to wait after the claim.
func awaitRun(claimed <-chan struct{}, done <-chan runResult, wait time.Duration) (run runResult, ended bool) {
	select {
	case <-claimed:
	case run = <-done:
		ended = true
	}
	select {
	case <-claimed: // takes precedence over a run that has ended since
	default:
		return run, true // the run claimed nothing
	}
	if !ended && wait > 0 {
		select {
		case run = <-done:
			ended = true
		case <-time.After(wait):
		}
	}
	run.waited = wait
	return run, ended && wait > 0
}
