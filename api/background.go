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

// Background is where runs go on when their clients prefer not to wait for them
// (RFC 7240, respond-async). Their number is bounded, because no client's
// patience bounds it.
type Background struct {
	slots  chan struct{} // has as many elements as runs are under way
	logger *slog.Logger
}

// NewBackground returns room for limit runs at once.
func NewBackground(limit int, logger *slog.Logger) (*Background, error) {
	switch {
	case limit < 1:
		return nil, errors.New("api: room for at least one background run is needed")
	case logger == nil:
		return nil, errors.New("api: no logger")
	}
	return &Background{slots: make(chan struct{}, limit), logger: logger}, nil
}

// Wait waits until all runs have ended, or ctx has. For that it takes one slot
// after the other, so that no run begins meanwhile. A run that it does not wait
// for is not lost: a retry or the completer takes it over (R10).
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

// keyedRun runs a request under its key. It waits up to wait for another run that
// holds the key, and calls claimed once the request is sure to be finished.
type keyedRun func(ctx context.Context, wait time.Duration, claimed func()) (idempotency.Result, error)

// ended is what a run came to.
type ended struct {
	result idempotency.Result
	err    error
}

// start runs in the background, unless there are too many already: then it
// returns nil. The channel gets one value; nobody needs to read it.
func (b *Background) start(ctx context.Context, run func(context.Context) (idempotency.Result, error)) <-chan ended {
	select {
	case b.slots <- struct{}{}:
	default:
		return nil
	}
	done := make(chan ended, 1)
	go func() {
		defer func() { <-b.slots }()
		begun := time.Now()
		entry := &requestLog{}
		result, err := caught(ctx, run, entry)
		entry.result(result, err)
		if err != nil {
			entry.problem(ctx, problemOf(err), err)
		}
		b.logger.LogAttrs(ctx, entry.level, "background run", append([]slog.Attr{
			slog.String("request_id", requestID(ctx)),
			slog.String("account_id", accountID(ctx).String()),
			slog.String("key_id", result.KeyID.String()),
			slog.Duration("duration", time.Since(begun)),
		}, entry.attrs...)...)
		done <- ended{result, err}
	}()
	return done
}

// caught makes an error of a panic. No handler is above a background run, so it
// would end the process.
func caught(
	ctx context.Context, run func(context.Context) (idempotency.Result, error), entry *requestLog,
) (result idempotency.Result, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			entry.add(slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return run(ctx)
}
