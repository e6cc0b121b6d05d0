package program_test

import (
	"flag"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"example.com/orders-api/lab/programtest"
	"example.com/orders-api/payments/stripetest"
)

var update = flag.Bool("update", false, "write the traces that docs/tracing.md shows")

func TestTraces(t *testing.T) {
	t.Parallel()
	f, c := programtest.NewFixture(t), newCollector(t)
	f.Environ = f.With("OTEL_EXPORTER_OTLP_ENDPOINT="+c.url, "OTEL_SERVICE_NAME=tea-shop")
	a := f.Serve(f.Environ, "--shutdown-delay", "0")
	requireStatus(t, a, http.StatusCreated, "traced-order-0000") // prepares the statements
	requireStatus(t, a, http.StatusCreated, "traced-order-0001")

	lost := []*stripetest.Injection{
		f.Stripe.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: confirmEndpoint, Times: stripetest.Always}),
		f.Stripe.Inject(stripetest.Rule{Fault: stripetest.CloseBefore, Endpoint: "GET /v1/payment_intents/{id}", Times: stripetest.Always}),
	}
	requireStatus(t, a, http.StatusServiceUnavailable, "traced-order-0002")
	for _, fault := range lost {
		fault.Release()
	}
	requireStatus(t, a, http.StatusCreated, "traced-order-0002")
	requireStatus(t, a, http.StatusCreated, "traced-order-0002")
	rejecting := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: confirmEndpoint, Times: stripetest.Always})
	requireStatus(t, a, http.StatusServiceUnavailable, "traced-order-0003")
	rejecting.Release()
	f.Exec("UPDATE idempotency_keys SET last_run_at = last_run_at - interval '10 minutes' WHERE recovery_point <> 'finished'")
	a.Stop()
	programtest.Run(t, f.Environ, "completer")

	c.requireWellFormed()
	c.requireKeyIDs()
	require.Contains(t, c.raw(), "tea-shop")
	traces := c.traces()
	for name, n := range map[string]int{"order": 1, "lost": 2, "retry": 3, "replay": 4, "completer": 6} {
		requireTrace(t, filepath.Join("testdata", "traces", name+".text"), traces[n])
	}
	require.Len(t, traces, 7)
}

func requireTrace(t *testing.T, file, trace string) {
	t.Helper()
	// On a slow machine the API key is looked up again.
	trace = strings.Replace(trace, "\n  SELECT\n  SELECT\n", "\n  SELECT\n", 1)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(trace), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), trace, "go -C lab test ./program -run '^TestTraces$' -update writes the file")
}

// requireKeyIDs checks that a step, its request and its inner spans have the key's id.
func (c *collector) requireKeyIDs() {
	c.t.Helper()
	byID := map[string]*tracepb.Span{}
	for _, span := range c.spans() {
		byID[string(span.GetSpanId())] = span
	}
	const keyID = "orders.key_id"
	for _, span := range c.spans() {
		parent := byID[string(span.GetParentSpanId())]
		if strings.HasPrefix(span.GetName(), "step ") {
			require.NotEmpty(c.t, attribute(span, keyID))
		}
		if parent != nil && (strings.HasPrefix(span.GetName(), "step ") || strings.HasPrefix(parent.GetName(), "step ")) {
			require.Equal(c.t, attribute(parent, keyID), attribute(span, keyID), span.GetName())
		}
	}
}

func requireStatus(t *testing.T, a *programtest.API, status int, idempotencyKey string) {
	t.Helper()
	response, err := a.Order(t.Context(), idempotencyKey)
	require.NoError(t, err)
	require.Equal(t, status, response.Status, response.Body)
}

// The trace of a client is not continued, whether it is sampled or not.
func TestTraces_clientContext(t *testing.T) {
	t.Parallel()
	f, c := programtest.NewFixture(t), newCollector(t)
	a := f.Serve(f.With("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+c.url+"/v1/traces", "OTEL_TRACES_SAMPLER=parentbased_always_on"),
		"--shutdown-delay", "0")
	const clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, sampled := range []string{"00", "01"} {
		_, err := a.Do(t.Context(), http.MethodGet, "/v1/idempotency-keys/a-key-never-used-1", "", http.Header{
			"Traceparent": {"00-" + clientTrace + "-00f067aa0ba902b7-" + sampled},
			"Tracestate":  {"vendor=canary-of-a-client"},
		})
		require.NoError(t, err)
	}
	_, err := a.Do(t.Context(), http.MethodGet, "/readyz", "", nil)
	require.NoError(t, err)
	a.Stop()
	for _, trace := range c.traces() {
		require.True(t, strings.HasPrefix(trace, "GET /v1/idempotency-keys/{key}: 404\n"), trace)
	}
	require.Len(t, c.traces(), 2)
	require.NotContains(t, c.raw(), clientTrace)
	require.NotContains(t, c.raw(), "a-key-never-used-1")
	require.NotContains(t, c.raw(), "canary-of-a-client")
	for _, span := range c.spans() {
		require.NotEmpty(t, attribute(span, "orders.request_id")+string(span.GetParentSpanId()))
		require.NotEqual(t, tracepb.Span_SPAN_KIND_UNSPECIFIED, span.GetKind())
	}
}

// An unresponsive collector does not delay orders, and delays a stop by seconds at most.
func TestTraces_collectorHangs(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	f := programtest.NewFixture(t)
	a := f.Serve(f.With("OTEL_EXPORTER_OTLP_ENDPOINT=http://"+listener.Addr().String()), "--shutdown-delay", "0")
	for _, key := range []string{"traced-order-0001", "traced-order-0002"} {
		requireStatus(t, a, http.StatusCreated, key)
	}
	a.Stop()
	require.Equal(t, 1, strings.Count(a.Stderr.String(), "the last traces were not delivered"))
}

func TestTraces_invalidConfiguration(t *testing.T) {
	t.Parallel()
	f := programtest.NewFixture(t)
	p := programtest.Start(t, f.With("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "OTEL_RESOURCE_ATTRIBUTES=no-value-for-a-key"), "completer")
	require.Equal(t, 1, p.Wait())
	require.Contains(t, p.Stderr.String(), "OTEL_RESOURCE_ATTRIBUTES:")
}

func TestTraces_off(t *testing.T) {
	t.Parallel()
	f, c := programtest.NewFixture(t), newCollector(t)
	for _, off := range [][]string{
		{"OTEL_SERVICE_NAME=orders", "OTEL_EXPORTER_OTLP_HEADERS=key=value", "OTEL_EXPORTER_OTLP_ENDPOINT="},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_SDK_DISABLED=true"},
	} {
		a := f.Serve(f.With(off...), "--shutdown-delay", "0")
		requireStatus(t, a, http.StatusCreated, "an-untraced-order")
		a.Stop()
		require.NotContains(t, a.Stderr.String(), "traces")
	}
	require.Empty(t, c.spans())
}
