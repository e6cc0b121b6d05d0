package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/admission"
)

type logEntry struct {
	requestID string
	level     slog.Level
	attrs     []slog.Attr
	outcome   string // how the run of the key ended; "" for a request without a key
}

type logEntryKey struct{}

func entryOf(ctx context.Context) *logEntry {
	return ctx.Value(logEntryKey{}).(*logEntry)
}

func (l *logEntry) add(attrs ...slog.Attr) { l.attrs = append(l.attrs, attrs...) }

func (l *logEntry) problem(p problem, cause error) {
	l.add(slog.String("problem", path.Base(p.Type)))
	if p.Status < http.StatusInternalServerError {
		return
	}
	l.add(slog.String("error", cause.Error()))
	l.level = slog.LevelWarn
	if p.Status == http.StatusInternalServerError {
		l.level = slog.LevelError
	}
}

func (l *logEntry) result(result idempotency.Result, err error) {
	l.setOutcome(outcome(result, err))
	if result.Runs > 0 { // Without a run, there is no such key.
		l.add(
			slog.String("from", string(result.From)),
			slog.String("to", string(result.To)),
			slog.Int("runs", result.Runs),
		)
	}
}

func (l *logEntry) setOutcome(outcome string) {
	l.outcome = outcome
	l.add(slog.String("outcome", outcome))
}

func outcome(result idempotency.Result, err error) string {
	switch {
	case errors.Is(err, idempotency.ErrKeyReused):
		return "reused"
	case errors.Is(err, idempotency.ErrActionRequired):
		return "requires_action"
	case errors.Is(err, idempotency.ErrLeaseLost):
		return "lease_lost"
	case errors.Is(err, idempotency.ErrInProgress):
		return "in_progress"
	case errors.Is(err, admission.ErrOverloaded), err != nil && problemOf(err).Status < http.StatusInternalServerError:
		return "rejected"
	case err != nil:
		return "retryable"
	case result.Replayed:
		return "replayed"
	case result.Runs > 1:
		return "recovered"
	default:
		return "created"
	}
}

func (l *logEntry) write(logger *slog.Logger, r *http.Request, w middleware.WrapResponseWriter, took time.Duration) string {
	ctx := r.Context()
	route := chi.RouteContext(ctx).RoutePattern()
	logger.LogAttrs(ctx, l.level, "request", append([]slog.Attr{
		slog.String("request_id", l.requestID),
		slog.String("method", r.Method),
		slog.String("route", route),
		slog.Int("status", w.Status()),
		slog.Int("bytes", w.BytesWritten()),
		slog.Float64("duration_seconds", took.Seconds()),
	}, l.attrs...)...)
	return route
}
