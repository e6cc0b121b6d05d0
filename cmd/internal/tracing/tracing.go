package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
)

const flushTimeout = 3 * time.Second

const scope = "orders-api"

// Tracing creates and exports spans. A nil Tracing is valid and creates none.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	logger   *slog.Logger
}

// Start returns nil unless one of OpenTelemetry's variables names a collector.
func Start(ctx context.Context, logger *slog.Logger) (*Tracing, error) {
	endpoint := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") + os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil //nolint:nilnil // a nil Tracing is valid
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("orders-api")),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		logger.Warn("traces are not delivered", "error", err)
	}))
	t := newTracing(logger, sdktrace.WithBatcher(filter{exporter}), sdktrace.WithResource(about))
	logger.InfoContext(ctx, "traces are sent")
	return t, nil
}

func newTracing(logger *slog.Logger, options ...sdktrace.TracerProviderOption) *Tracing {
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(keyIDs{}))...)
	return &Tracing{provider: provider, tracer: provider.Tracer(scope), logger: logger}
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

// ConfigurePool adds a span for each statement or batch in a trace, without its arguments.
func (t *Tracing) ConfigurePool(config *pgxpool.Config) {
	if t == nil {
		return
	}
	tracer := otelpgx.NewTracer(otelpgx.WithTracerProvider(t.provider), otelpgx.WithDisableConnectionDetailsInAttributes())
	config.ConnConfig.Tracer = statements{tracer, tracer}
}

// statements traces only round trips: connecting and preparing show as a gap before them.
type statements struct {
	pgx.QueryTracer
	pgx.BatchTracer
}

// TraceBatchQuery does nothing: a batch is one round trip.
func (statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
