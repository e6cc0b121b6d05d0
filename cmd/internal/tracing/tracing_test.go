package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/orders-api/cmd/internal/tracing"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// run makes a run's span, does work inside of it and returns all spans.
func run(t *testing.T, work func(context.Context, *tracing.Tracing)) tracetest.SpanStubs {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	traces := tracing.Into(exporter)
	ctx := traces.Engine().Start(t.Context(), idempotency.Span{Kind: idempotency.RunSpan, Name: "create_order"})
	work(ctx, traces)
	traces.Engine().End(ctx, idempotency.Result{}, nil)
	return exporter.GetSpans()
}

// client is a client of the provider whose calls are traced.
func client(t *testing.T, traces *tracing.Tracing, url string) *payments.Client {
	t.Helper()
	client, err := payments.New(payments.Config{
		SecretKey: "sk_test_canary", BaseURL: url, Timeout: 2 * time.Second, Backoff: time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Transport: traces.Provider(),
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// What could not be sent is still known not to have run, and what was sent is
// still not taken for that.
func TestProvider_whatWasSent(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	hangsUp := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(hangsUp.Close)
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	for name, test := range map[string]struct {
		url     string
		outcome payments.Outcome
		cause   error
	}{
		"refused":   {"http://" + listener.Addr().String(), payments.NotExecuted, syscall.ECONNREFUSED},
		"untrusted": {untrusted.URL, payments.NotExecuted, payments.ErrNoResponse},
		"hangs up":  {hangsUp.URL, payments.Unknown, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans := run(t, func(ctx context.Context, traces *tracing.Tracing) {
				_, err := client(t, traces, test.url).Confirm(ctx, "orders-api-canary-key-confirm", "pi_3U6HKD3L64ZNGFAI")
				var failure *payments.Error
				require.ErrorAs(t, err, &failure)
				require.Equal(t, test.outcome, failure.Outcome)
				require.ErrorIs(t, err, test.cause)
			})
			require.Greater(t, len(spans), 1)
			for _, send := range spans[:len(spans)-1] {
				require.Equal(t, "POST /v1/payment_intents/{id}/confirm", send.Name)
				require.Equal(t, spans[len(spans)-1].SpanContext.SpanID(), send.Parent.SpanID())
				require.Empty(t, send.Status.Description)
			}
		})
	}
}

// The provider is not told which trace it is in, and its connections are closed
// with the client.
func TestProvider_toldNothing(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			require.NotContains(t, strings.ToLower(name), "trace")
		}
		_, _ = io.WriteString(w, `{"id":"pi_1","object":"payment_intent","status":"succeeded","metadata":{}}`)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	run(t, func(ctx context.Context, traces *tracing.Tracing) {
		c := client(t, traces, server.URL)
		_, _ = c.Get(ctx, "pi_1")
		c.Close()
	})
	<-closed
}

// What is part of no trace begins none.
func TestProvider_alone(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	exporter := tracetest.NewInMemoryExporter()
	_, err := client(t, tracing.Into(exporter), server.URL).Get(t.Context(), "pi_1")
	require.Error(t, err)
	require.Empty(t, exporter.GetSpans())
}

// A library that records more than it should does not get it out.
func TestFilter(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	traces := tracing.Into(exporter)
	handler := traces.Requests()(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		span := trace.SpanFromContext(r.Context())
		span.SetAttributes(attribute.String("a.new.one", "canary"))
		span.RecordError(errors.New("canary"))
		span.SetStatus(codes.Error, "canary")
	}))
	inRouter := context.WithValue(t.Context(), chi.RouteCtxKey, chi.NewRouteContext())
	r := httptest.NewRequestWithContext(inRouter, http.MethodGet, "/v1/idempotency-keys/canary?canary=canary", nil)
	r.Header.Set("User-Agent", "canary")
	handler.ServeHTTP(httptest.NewRecorder(), r)
	spans := exporter.GetSpans()
	require.Len(t, spans, 1)
	require.Contains(t, spans[0].Attributes, attribute.String("http.request.method", "GET"))
	require.Len(t, spans[0].Events, 1)
	require.NotContains(t, fmt.Sprintf("%+v", spans), "canary")
}

// A collector that is away is no reason to fill the log.
func TestErrorHandler(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	handler := tracing.ErrorHandler(slog.New(slog.NewTextHandler(&log, nil)))
	for range 1000 {
		handler.Handle(errors.New("connection refused"))
	}
	require.Equal(t, 1, strings.Count(log.String(), "connection refused"))
}

// Tracing that is off is what the seams take for off.
func TestOff(t *testing.T) {
	t.Parallel()
	var off *tracing.Tracing
	require.Nil(t, off.Engine())
	require.Nil(t, off.Provider())
	require.Nil(t, off.Requests())
	require.Nil(t, off.Mailer(nil))
	off.ConfigurePool(nil)
	off.Stop(t.Context())
}
