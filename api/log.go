package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/limiter"
)

// requestState has the account of a request and what its log line contains.
type requestState struct {
	requestID string
	account   uuid.UUID // uuid.Nil before requireAPIKey

	level   slog.Level
	attrs   []slog.Attr
	outcome string // of the run under a key, "" without one
}

type requestStateKey struct{}

// stateOf returns the state of a request that passed [withLog].
func stateOf(ctx context.Context) *requestState {
	return ctx.Value(requestStateKey{}).(*requestState)
}

func (l *requestState) add(attrs ...slog.Attr) { l.attrs = append(l.attrs, attrs...) }

// problem adds the problem of a failed request, and its cause unless the client is the
// cause.
func (l *requestState) problem(ctx context.Context, p problem, cause error) {
	l.add(slog.String("problem", p.slug))
	if p.Status < http.StatusInternalServerError {
		return
	}
	l.add(slog.String("error", cause.Error()))
	switch {
	case errors.Is(cause, context.Canceled) && ctx.Err() != nil:
		// The client closed the connection, which cancelled the query.
	case p.Status == http.StatusInternalServerError:
		l.level = slog.LevelError
	default:
		l.level = slog.LevelWarn // temporary
	}
}

// result adds the result of a run. The client's key is never logged, only its id.
func (l *requestState) result(result idempotency.Result, err error) {
	l.setOutcome(outcome(result, err))
	if result.Attempt > 0 { // the key exists
		l.add(
			slog.String("from", string(result.From)),
			slog.String("to", string(result.To)),
			slog.Int("attempt", result.Attempt),
		)
	}
}

func (l *requestState) setOutcome(outcome string) {
	l.outcome = outcome
	l.add(slog.String("outcome", outcome))
}

// outcome classifies a result as one of [Outcomes].
func outcome(result idempotency.Result, err error) string {
	switch {
	case errors.Is(err, idempotency.ErrKeyReused):
		return "reused"
	case errors.Is(err, idempotency.ErrActionRequired):
		return "action_required"
	case errors.Is(err, idempotency.ErrLeaseLost):
		return "lease_lost"
	case errors.Is(err, idempotency.ErrInProgress):
		return "in_progress"
	case errors.Is(err, limiter.ErrOverloaded), err != nil && problemOf(err).Status < http.StatusInternalServerError:
		return "refused"
	case err != nil:
		return "retryable"
	case result.Replayed:
		return "replayed"
	case result.Attempt > 1:
		return "recovered"
	default:
		return "created"
	}
}

func (l *requestState) write(logger *slog.Logger, r *http.Request, w middleware.WrapResponseWriter, took time.Duration) string {
	ctx := r.Context()
	route := chi.RouteContext(ctx).RoutePattern()
	logger.LogAttrs(ctx, l.level, "request", append([]slog.Attr{
		slog.String("request_id", l.requestID),
		slog.String("method", r.Method),
		slog.String("route", route),
		slog.Int("status", w.Status()),
		slog.Int("bytes", w.BytesWritten()),
		slog.Duration("duration", took),
		slog.String("client_ip", middleware.GetClientIP(ctx)),
	}, l.attrs...)...)
	return route
}

// RequestEvent describes a request and its response.
type RequestEvent struct {
	Method   string // GET, HEAD, POST or "other"
	Route    string // the pattern, "" if no route matched
	Status   int
	Duration time.Duration

	// Outcome is one of [Outcomes], or "" for a request without an idempotency key or
	// event.
	Outcome string
}

// Outcomes are the outcomes of a request with an idempotency key, or of an event.
func Outcomes() []string {
	return []string{
		"created",         // the first run stored a response, which may be a decline
		"replayed",        // the response was stored before
		"recovered",       // a later run stored a response
		"accepted",        // 202, the run continues
		"action_required", // 202, the customer must approve the payment
		"in_progress",     // another run holds the key
		"reused",          // the key was used for another request
		"lease_lost",      // another run took the key over
		"refused",         // the request is not valid, or was rejected because of overload
		"retryable",       // the run stored no response
		"refund_synced",   // an event changed the status of a refund
		"ignored",         // an event was not about an object of ours
	}
}
