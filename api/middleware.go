package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/audit"
)

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

func withoutQuery(next http.Handler) http.Handler {
	return handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		if _, err := readQuery(r.URL.RawQuery); err != nil {
			return err
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

func withHeaders(ready *Readiness) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			header := w.Header()
			header.Set("Cache-Control", "no-store")
			header.Set("X-Content-Type-Options", "nosniff")
			if ready.draining.Load() {
				header.Set("Connection", "close")
			}
			next.ServeHTTP(w, r)
		})
	}
}

// withLog recovers panics and logs each request, without its path, because that may contain a secret.
func withLog(logger *slog.Logger, onRequest observer) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			entry := &logEntry{requestID: r.Header.Get("X-Request-Id")} // A proxy may have set it.
			if !requestIDPattern.MatchString(entry.requestID) {
				entry.requestID = rand.Text()
			}
			w.Header().Set("X-Request-Id", entry.requestID)
			r = r.WithContext(context.WithValue(r.Context(), logEntryKey{}, entry))
			ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			defer func() {
				if cause := recover(); cause != nil {
					entry.add(slog.String("stack", string(debug.Stack())))
					writeProblem(ww, r, fmt.Errorf("panic: %v", cause))
				}
				took := time.Since(start)
				route := entry.write(logger, r, ww, took)
				method := r.Method
				if route == "" { // an outsider can send any method
					method = "other"
				}
				if onRequest != nil {
					onRequest(method, route, ww.Status(), took, entry.outcome)
				}
			}()
			next.ServeHTTP(ww, r)
		})
	}
}

func requireAPIKey(authenticator *accounts.Authenticator) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			var account uuid.UUID
			challenge := `Bearer realm="orders"`
			apiKey, err := bearerToken(r.Header)
			if err == nil {
				account, err = authenticator.Authenticate(r.Context(), apiKey)
				challenge += `, error="invalid_token"` // only about a token that was sent (RFC 6750, 3.1)
			}
			if errors.Is(err, accounts.ErrUnauthorized) {
				w.Header().Set("WWW-Authenticate", challenge)
			}
			if err != nil {
				return err
			}
			entryOf(r.Context()).add(slog.String("account_id", account.String()))
			ctx := audit.WithAPIKey(r.Context(), accounts.Prefix(apiKey))
			next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, accountKey{}, account)))
			return nil
		})
	}
}

type accountKey struct{}

// accountID returns the account of a request that passed [requireAPIKey].
func accountID(ctx context.Context) uuid.UUID { return ctx.Value(accountKey{}).(uuid.UUID) }

// bearerToken follows RFC 6750.
func bearerToken(header http.Header) (string, error) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return "", accounts.ErrUnauthorized
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimLeft(token, " ") // 1*SP (RFC 9110, 11.4)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", accounts.ErrUnauthorized
	}
	return token, nil
}

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
