package tracing

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
)

// noPropagation ignores a client's trace, which could be that of another client, and sends
// the provider none.
var noPropagation = otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator())

// Requests adds a span for each request to /v1.
func (t *Tracing) Requests() func(http.Handler) http.Handler {
	if t == nil {
		return nil
	}
	traced := otelhttp.NewMiddleware("request", otelhttp.WithTracerProvider(t.provider), noPropagation,
		otelhttp.WithFilter(func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/") }))
	return func(next http.Handler) http.Handler { return traced(withRoute(next)) }
}

// withRoute adds the route, which is known after the request was served.
func withRoute(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		span := trace.SpanFromContext(r.Context())
		if pattern := chi.RouteContext(r.Context()).RoutePattern(); pattern != "" {
			span.SetName(r.Method + " " + pattern)
			span.SetAttributes(semconv.HTTPRoute(pattern))
		}
		span.SetAttributes(requestID.String(w.Header().Get("X-Request-Id")))
	})
}

// Provider adds a span for each request to the provider.
func (t *Tracing) Provider(base http.RoundTripper) http.RoundTripper {
	if t == nil {
		return base
	}
	return otelhttp.NewTransport(base, otelhttp.WithTracerProvider(t.provider), noPropagation,
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
			return r.Method + " " + objectID.ReplaceAllLiteralString(r.URL.Path, "/{id}")
		}))
}

var objectID = regexp.MustCompile(`/[a-z]+_[A-Za-z0-9_]*[A-Z0-9][A-Za-z0-9_]*`)
