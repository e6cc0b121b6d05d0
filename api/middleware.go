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

	"github.com/go-chi/chi/v5/middleware"
)

type contextKey int

const (
	requestIDKey contextKey = iota
	accountKey
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

// noContent is the policy of answers that load nothing and belong in no frame.
const noContent = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// withHeaders sets what every answer carries. The pages for people set their
// own where they need more.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", noContent)
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// withLog writes one structured line per request, tells the observer, and answers
// a panic. The line names the route's pattern and not the address, which could
// carry what somebody should not have put there.
func withLog(logger *slog.Logger, observer Observer) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			entry := &requestLog{}
			r = r.WithContext(context.WithValue(r.Context(), requestLogKey, entry))
			ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			defer func() {
				cause := recover()
				begun := ww.Status() != 0
				if cause != nil {
					err := fmt.Errorf("panic: %v", cause)
					entry.add(slog.String("stack", string(debug.Stack())))
					if begun {
						entry.failed(err)
					} else {
						writeProblem(ww, r, err)
					}
				}
				took := time.Since(start)
				route := entry.write(logger, r, ww, took)
				observer.answered(r.Method, route, ww.Status(), took, entry.outcome)
				if cause != nil && begun {
					panic(http.ErrAbortHandler) // half an answer may be out: cut the connection
				}
			}()
			next.ServeHTTP(ww, r)
		})
	}
}
