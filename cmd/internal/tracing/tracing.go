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
	// flushTimeout bounds what a stop waits for the collector to take the last
	// spans. A collector that is well takes milliseconds.
	flushTimeout = 3 * time.Second

	// complainEvery keeps a collector that is away from filling the log.
	complainEvery = time.Minute
)

// scope is the name of what makes our own spans.
const scope = "orders-api"

// Tracing makes spans and sends them. A nil one makes none, and what its methods
// return is what their seams take for off.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	logger   *slog.Logger
}

// Start returns what the standard variables of OpenTelemetry ask for: nil unless
// one of them names a collector.
func Start(ctx context.Context, logger *slog.Logger) (*Tracing, error) {
	if wanted, err := wanted(); !wanted {
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
	// OpenTelemetry knows one handler for a process. Without ours it would write
	// to stderr, past the log and as often as it likes.
	otel.SetErrorHandler(&complaints{logger: logger})
	t := newTracing(logger, sdktrace.WithBatcher(filter{exporter}), sdktrace.WithResource(about))
	logger.InfoContext(ctx, "traces are sent")
	return t, nil
}

func newTracing(logger *slog.Logger, options ...sdktrace.TracerProviderOption) *Tracing {
	provider := sdktrace.NewTracerProvider(options...)
	return &Tracing{provider: provider, tracer: provider.Tracer(scope), logger: logger}
}

// wanted says whether the environment asks for traces. The SDK reads the same
// variables by itself, and a few dozen more.
func wanted() (bool, error) {
	switch {
	case os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "",
		strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"),
		os.Getenv("OTEL_TRACES_EXPORTER") == "none":
		return false, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		// The SDK would not say so, and send to this machine instead.
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

// version is the module's, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Main.Version
}

// Stop sends what is left, and gives that up after a few seconds. It does so when
// ctx has ended, too, which is why a process stops.
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

// complaints logs what OpenTelemetry has to say, once in a while.
type complaints struct {
	logger *slog.Logger
	mu     sync.Mutex
	last   time.Time
}

// Handle is called by OpenTelemetry.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.last) >= complainEvery {
		c.last = now
		c.logger.Warn("traces are not delivered; more of this is not logged for a minute", "error", err)
	}
}
