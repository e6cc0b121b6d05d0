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

// Background counts and bounds the runs of respond-async, which outlive the connections of their
// clients. Its capacity is the maximum.
type Background chan struct{}

// Wait blocks until all runs have ended, or ctx ends. Meanwhile no run can begin.
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

// start begins a run in the background and sends its result, or returns false if there are too many runs.
func (h *Handlers) start(ctx context.Context, results chan<- *runResult, run func(context.Context) runResult) bool {
	select {
	case h.Background <- struct{}{}:
	default:
		return false
	}
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
		results <- &result
	}()
	return true
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

// serveAsync executes the request in the background. It responds with 202 once the claim is
// durable, unless the client's wait suffices for the result.
func (h *Handlers) serveAsync(ctx context.Context, w http.ResponseWriter, r *http.Request, req idempotentRequest) error {
	results := make(chan *runResult, 2) // nil once the claim is durable, and then the result
	req.OnClaim = sync.OnceFunc(func() { results <- nil })
	if !h.start(ctx, results, func(ctx context.Context) runResult { return h.run(ctx, req) }) {
		return h.writeRunResult(w, r, req.Key, h.run(ctx, req)) // without the preference
	}
	run := <-results
	if run == nil && req.prefer.wait > 0 {
		select {
		case run = <-results:
			run.waited = req.prefer.wait
		case <-time.After(req.prefer.wait):
		}
	}
	switch {
	case run == nil:
		return h.writeAccepted(w, r, req.Key, req.prefer, nil)
	case errors.Is(run.err, idempotency.ErrInProgress) && run.Runs > 0: // Another run has claimed the key.
		return h.writeAccepted(w, r, req.Key, preferences{respondAsync: true, wait: run.waited}, nil)
	default:
		return h.writeRunResult(w, r, req.Key, *run)
	}
}
