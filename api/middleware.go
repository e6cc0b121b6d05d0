package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/audit"
)

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// noContent is the policy of responses that load nothing.
const noContent = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

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
			header.Set("Content-Security-Policy", noContent)
			header.Set("Referrer-Policy", "no-referrer")
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
				if onRequest != nil {
					onRequest(knownMethod(r.Method), route, ww.Status(), took, entry.outcome)
				}
			}()
			next.ServeHTTP(ww, r)
		})
	}
}

// knownMethod bounds the number of label values of a metric.
func knownMethod(method string) string {
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost}, method) {
		return method
	}
	return "other"
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
