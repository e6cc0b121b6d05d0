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
		begun, entry, result := time.Now(), &logEntry{}, runResult{}
		defer func() {
			if cause := recover(); cause != nil { // which would end the process
				entry.add(slog.String("stack", string(debug.Stack())))
				result.err = fmt.Errorf("panic: %v", cause)
			}
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
			<-h.Background
		}()
		result = run(ctx)
	}()
	return true
}

// serveAsync executes the request in the background. It responds with 202 once the claim is
// durable, unless the client's wait suffices for the result.
func (h *Handlers) serveAsync(w http.ResponseWriter, r *http.Request, key idempotency.Key, prefer preferences, execute runFunc) error {
	results := make(chan *runResult, 2) // nil once the claim is durable, and then the result
	onClaim := sync.OnceFunc(func() { results <- nil })
	if !h.start(r.Context(), results, func(ctx context.Context) runResult { return execute(ctx, onClaim) }) {
		return h.writeRunResult(w, r, key, execute(r.Context(), nil)) // without the preference
	}
	run := <-results
	if run == nil && prefer.wait > 0 {
		select {
		case run = <-results:
			run.waited = prefer.wait
		case <-time.After(prefer.wait):
		}
	}
	switch {
	case run == nil:
		return h.writeAccepted(w, r, key, prefer, nil)
	case errors.Is(run.err, idempotency.ErrInProgress) && run.Runs > 0: // Another run has claimed the key.
		return h.writeAccepted(w, r, key, preferences{respondAsync: true, wait: run.waited}, nil)
	default:
		return h.writeRunResult(w, r, key, *run)
	}
}
