package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// Background holds the runs whose clients prefer not to wait for them (RFC 7240,
// respond-async). Their number is bounded, because no open connection bounds it.
type Background struct {
	slots  chan struct{} // one element per run in progress
	logger *slog.Logger
}

// NewBackground returns a Background for up to limit runs at once.
func NewBackground(limit int, logger *slog.Logger) (*Background, error) {
	switch {
	case limit < 1:
		return nil, errors.New("api: the limit of background runs must be positive")
	case logger == nil:
		return nil, errors.New("api: no logger")
	}
	return &Background{slots: make(chan struct{}, limit), logger: logger}, nil
}

// Wait waits until all runs have ended, or until ctx ends. It takes one slot after
// the other, so no run begins meanwhile. A run that is still in progress when ctx
// ends is not lost: a retry or the completer takes it over (R10).
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

// start runs in the background, unless there are too many runs already: then it
// returns nil. The channel receives one value and need not be read.
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
		entry := &requestLog{}
		result := recovered(ctx, run, entry)
		entry.result(result.Result, result.err)
		if result.err != nil {
			entry.problem(ctx, problemOf(result.err), result.err)
		}
		b.logger.LogAttrs(ctx, entry.level, "background run", append([]slog.Attr{
			slog.String("request_id", requestID(ctx)),
			slog.String("account_id", accountID(ctx).String()),
			slog.String("key_id", result.KeyID.String()),
			slog.Duration("duration", time.Since(begun)),
		}, entry.attrs...)...)
		done <- result
	}()
	return done
}

// recovered turns a panic into an error. No handler is above a background run, so
// the panic would end the process.
func recovered(ctx context.Context, run func(context.Context) runResult, entry *requestLog) (result runResult) {
	defer func() {
		if cause := recover(); cause != nil {
			entry.add(slog.String("stack", string(debug.Stack())))
			result.err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return run(ctx)
}
