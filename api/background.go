package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"example.com/orders-api/idempotency"
)

// Background holds the runs of respond-async, whose number no connection bounds.
type Background struct {
	slots  chan struct{}
	logger *slog.Logger
}

// NewBackground returns a Background for up to limit runs.
func NewBackground(limit int, logger *slog.Logger) *Background {
	return &Background{slots: make(chan struct{}, limit), logger: logger}
}

// Wait blocks until all runs have ended, or ctx ends, and lets no run begin.
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

// start begins a run, or returns nil if there are too many.
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
