package tracing_test

import (
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
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/orders-api/cmd/internal/tracing"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

var keyID = uuid.MustParse("0fa4e1a5-4b3b-8b7c-9d4e-3f6f0f4b7a11")

func noHook(ctx context.Context, _ idempotency.StepStart) (context.Context, func(idempotency.StepEnd)) {
	return ctx, func(idempotency.StepEnd) {}
}

// inStep calls work inside the span of a step, which is the last that it returns.
func inStep(t *testing.T, work func(context.Context, *tracing.Tracing)) tracetest.SpanStubs {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	traces := tracing.Into(exporter)
	ctx, end := traces.OnStep(noHook)(t.Context(), idempotency.StepStart{Operation: "create_order", KeyID: keyID, Attempt: 1, From: "order_created"})
	work(ctx, traces)
	end(idempotency.StepEnd{To: "charge_created", Call: time.Second, Commit: time.Second})
	return exporter.GetSpans()
}

func TestOnStep(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	traces := tracing.Into(exporter)
	handler := traces.Requests()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "request-of-a-test")
		_, end := traces.OnStep(noHook)(r.Context(), idempotency.StepStart{Operation: "create_order", KeyID: keyID, From: idempotency.Started})
		end(idempotency.StepEnd{To: "order_created", Commit: time.Second, Err: errors.New("the text of a client")})
		_, end = traces.OnStep(noHook)(r.Context(), idempotency.StepStart{Operation: "create_order", KeyID: keyID, Attempt: 1, From: "order_created"})
		end(idempotency.StepEnd{To: "order_created", Call: time.Second, Err: errors.New("the provider is unavailable")})
	}))
	handler.ServeHTTP(httptest.NewRecorder(), request(t, http.MethodPost, "/v1/orders"))

	spans := exporter.GetSpans()
	require.Len(t, spans, 3)
	claim, step, served := spans[0], spans[1], spans[2]
	require.Equal(t, "step started", claim.Name)
	require.Equal(t, []attribute.KeyValue{
		attribute.String("orders.operation", "create_order"),
		attribute.Int("orders.attempt", 1),
		attribute.String("orders.recovery_point.from", "started"),
		attribute.String("orders.key_id", keyID.String()),
		attribute.String("orders.recovery_point.to", "order_created"),
	}, claim.Attributes)
	require.Zero(t, claim.Status)
	require.Equal(t, "step order_created", step.Name)
	require.Equal(t, codes.Error, step.Status.Code)
	require.Equal(t, "the provider is unavailable", step.Status.Description)
	require.Contains(t, served.Attributes, attribute.String("orders.key_id", keyID.String()))
	require.Contains(t, served.Attributes, attribute.String("orders.request_id", "request-of-a-test"))
	for _, inner := range spans[:2] {
		require.Equal(t, served.SpanContext.SpanID(), inner.Parent.SpanID())
	}
}

func request(t *testing.T, method, target string) *http.Request {
	t.Helper()
	routed := context.WithValue(t.Context(), chi.RouteCtxKey, chi.NewRouteContext())
	return httptest.NewRequestWithContext(routed, method, target, http.NoBody)
}

func client(t *testing.T, traces *tracing.Tracing, url string) *payments.Client {
	t.Helper()
	client := payments.New(payments.Config{
		SecretKey: "sk_test_canary", BaseURL: url, Timeout: 2 * time.Second, Backoff: time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Transport: traces.Provider(payments.NewTransport()),
	})
	t.Cleanup(client.Close)
	return client
}

// A request that could not be sent was not executed.
func TestProvider_outcome(t *testing.T) {
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
			spans := inStep(t, func(ctx context.Context, traces *tracing.Tracing) {
				_, err := client(t, traces, test.url).Confirm(ctx, "orders-api-canary-key-confirm", "pi_3U6HKD3L64ZNGFAI", true)
				var failure *payments.Error
				require.ErrorAs(t, err, &failure)
				require.Equal(t, test.outcome, failure.Outcome)
				require.ErrorIs(t, err, test.cause)
			})
			require.Greater(t, len(spans), 1)
			for _, sent := range spans[:len(spans)-1] {
				require.Equal(t, "POST /v1/payment_intents/{id}/confirm", sent.Name)
				require.Equal(t, spans[len(spans)-1].SpanContext.SpanID(), sent.Parent.SpanID())
				require.Contains(t, sent.Attributes, attribute.String("orders.key_id", keyID.String()))
				require.Empty(t, sent.Status.Description)
			}
		})
	}
}

func TestProvider_noPropagation(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			require.NotContains(t, strings.ToLower(name), "trace")
		}
		_, _ = io.WriteString(w, `{"id":"pi_1","object":"payment_intent","status":"succeeded","metadata":{}}`)
	}))
	t.Cleanup(server.Close)
	inStep(t, func(ctx context.Context, traces *tracing.Tracing) {
		_, err := client(t, traces, server.URL).Get(ctx, "pi_1")
		require.ErrorContains(t, err, "status 200") // the response is not a whole intent
	})
}

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
	r := request(t, http.MethodGet, "/v1/idempotency-keys/canary?canary=canary")
	r.Header.Set("User-Agent", "canary")
	const clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	r.Header.Set("Traceparent", "00-"+clientTrace+"-00f067aa0ba902b7-01")
	handler.ServeHTTP(httptest.NewRecorder(), r)
	spans := exporter.GetSpans()
	require.Len(t, spans, 1)
	require.Contains(t, spans[0].Attributes, attribute.String("http.request.method", "GET"))
	require.Empty(t, spans[0].Events)
	require.NotEqual(t, clientTrace, spans[0].SpanContext.TraceID().String(), "the trace of a client is not continued")
	require.NotContains(t, fmt.Sprintf("%+v", spans), "canary")
}

func TestTracing_off(t *testing.T) {
	t.Parallel()
	var off *tracing.Tracing
	require.Nil(t, off.OnStep(nil))
	require.IsType(t, &http.Transport{}, off.Provider(payments.NewTransport()))
	require.Nil(t, off.Requests())
	off.ConfigurePool(nil)
	off.Stop(t.Context())
}
