package tracing

import (
	"log/slog"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Into returns a Tracing that hands each span to exporter when it ends.
func Into(exporter sdktrace.SpanExporter, options ...sdktrace.TracerProviderOption) *Tracing {
	return newTracing(slog.New(slog.DiscardHandler), append(options, sdktrace.WithSyncer(filter{exporter}))...)
}

// ErrorHandler is what OpenTelemetry's complaints go to.
func ErrorHandler(logger *slog.Logger) interface{ Handle(error) } { return &complaints{logger: logger} }
