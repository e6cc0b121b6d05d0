package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
)

const (
	// flushTimeout bounds the delivery of the last spans at the stop.
	flushTimeout = 3 * time.Second

	// errorInterval is the shortest interval of log lines about an unavailable
	// collector.
	errorInterval = time.Minute
)

// scope is the instrumentation scope.
const scope = "orders-api"

// Tracing creates spans and exports them. A nil Tracing is valid and creates none.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	logger   *slog.Logger
}

// Start returns a Tracing configured by OpenTelemetry's standard variables, or nil if
// none names a collector.
func Start(ctx context.Context, logger *slog.Logger) (*Tracing, error) {
	if on, err := enabled(); !on {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("orders-api"), semconv.ServiceVersion(version())),
		resource.WithFromEnv(), // last, so that it wins
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	// OpenTelemetry's default handler writes to stderr, without a limit.
	otel.SetErrorHandler(&errorHandler{logger: logger})
	t := newTracing(logger, sdktrace.WithBatcher(filter{exporter}), sdktrace.WithResource(about))
	logger.InfoContext(ctx, "traces are sent")
	return t, nil
}

func newTracing(logger *slog.Logger, options ...sdktrace.TracerProviderOption) *Tracing {
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(keyIDs{}))...)
	return &Tracing{provider: provider, tracer: provider.Tracer(scope), logger: logger}
}

// enabled reports whether the environment names a collector.
func enabled() (bool, error) {
	switch {
	case os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "",
		strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"),
		os.Getenv("OTEL_TRACES_EXPORTER") == "none":
		return false, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		// The SDK would send to localhost instead.
		if u, err := url.Parse(os.Getenv(name)); err != nil || u.String() != "" && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return false, errors.New(name + " is not an http or https URL")
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch os.Getenv(name) {
		case "http/protobuf":
			return true, nil
		case "":
		default:
			return false, errors.New(name + ": traces leave as http/protobuf only, mostly to port 4318; leave it empty")
		}
	}
	return true, nil
}

// version returns the module's version, or its commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Main.Version
}

// Stop exports the remaining spans for at most flushTimeout, even if ctx has ended.
func (t *Tracing) Stop(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.logger.WarnContext(ctx, "the last traces were not delivered", "error", err)
	}
}

type errorHandler struct {
	logger *slog.Logger
	mu     sync.Mutex
	last   time.Time
}

func (h *errorHandler) Handle(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.Sub(h.last) >= errorInterval {
		h.last = now
		h.logger.Warn("traces are not delivered; more of this is not logged for a minute", "error", err)
	}
}
