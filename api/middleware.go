package api

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

type contextKey int

const (
	requestIDKey contextKey = iota
	accountIDKey
	requestLogKey
)

// requestIDPattern is what we take over from a proxy in front. Anything else
// could write into the log what it likes.
var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// withRequestID names the request, by the X-Request-Id that came with it if
// that is fit to be logged, and echoes the name.
func withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !requestIDPattern.MatchString(id) {
			id = rand.Text()
		}
		w.Header().Set("X-Request-Id", id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey, id)))
	})
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey).(string)
	return id
}

func accountID(ctx context.Context) uuid.UUID {
	id, _ := ctx.Value(accountIDKey).(uuid.UUID)
	return id
}

// withHeaders sets what every answer carries.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store") // the docs' assets set their own
		next.ServeHTTP(w, r)
	})
}

// requestLog collects what the request's one log line says beside the HTTP
// side of it.
type requestLog struct{ attrs []slog.Attr }

func logAttrs(ctx context.Context) *requestLog {
	if l, ok := ctx.Value(requestLogKey).(*requestLog); ok {
		return l
	}
	return &requestLog{}
}

func (l *requestLog) add(attrs ...slog.Attr) { l.attrs = append(l.attrs, attrs...) }

// problem notes why a request failed. The cause is for what the client is not
// told, and only where the client is not the cause.
func (l *requestLog) problem(p problem, cause error) {
	l.add(slog.String("problem", p.slug))
	if p.Status >= http.StatusInternalServerError {
		l.add(slog.String("error", cause.Error()))
	}
}

// result notes what became of an idempotency key. The key itself is the
// client's and stays out of the log.
func (l *requestLog) result(result idempotency.Result) {
	outcome := "created"
	switch {
	case result.Response.Status == 0:
		outcome = "unfinished"
	case result.Replayed:
		outcome = "replayed"
	case result.Attempt > 1:
		outcome = "recovered"
	}
	l.add(
		slog.String("key_id", result.KeyID.String()),
		slog.String("outcome", outcome),
		slog.String("from", string(result.From)),
		slog.String("to", string(result.To)),
		slog.Int("attempt", result.Attempt),
	)
}

// withLog writes one structured line per request. It names the route's pattern
// and not the address, which could carry what somebody should not have put
// there, and it answers a panic.
func withLog(logger *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			entry := &requestLog{}
			ctx := context.WithValue(r.Context(), requestLogKey, entry)
			r = r.WithContext(ctx)
			ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			defer func() {
				if cause := recover(); cause != nil {
					if cause == http.ErrAbortHandler { //nolint:errorlint // net/http panics with this very value
						panic(cause)
					}
					entry.add(slog.String("stack", string(debug.Stack())))
					err := fmt.Errorf("panic: %v", cause)
					if ww.Status() == 0 {
						writeProblem(ww, r, err)
					}
				}
				level := slog.LevelInfo
				if ww.Status() >= http.StatusInternalServerError {
					level = slog.LevelError
				}
				logger.LogAttrs(ctx, level, "request", append([]slog.Attr{
					slog.String("request_id", requestID(ctx)),
					slog.String("method", r.Method),
					slog.String("route", chi.RouteContext(ctx).RoutePattern()),
					slog.Int("status", ww.Status()),
					slog.Int("bytes", ww.BytesWritten()),
					slog.Duration("duration", time.Since(start)),
					slog.String("client_ip", middleware.GetClientIP(ctx)),
				}, entry.attrs...)...)
			}()
			next.ServeHTTP(ww, r)
		})
	}
}
