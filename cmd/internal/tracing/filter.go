package tracing

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// allowed are the attributes that are exported. Libraries record more in each release, such as
// URLs with keys of clients.
var allowed = []attribute.Key{
	keyID, operation, fromPoint, toPoint, attempt, requestID,
	"http.request.method", "http.response.status_code", "http.route",
	"http.request.body.size", "http.response.body.size", "network.protocol.version", "url.scheme",
	"db.system.name", "db.query.text", "db.operation.name", "db.operation.batch.size",
	"db.response.status_code", "db.response.returned_rows", "pgx.rows_affected", "pgx.sql_state", "error.type",
}

type filter struct{ sdktrace.SpanExporter }

func (f filter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	allowlisted := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, span := range spans {
		allowlisted[i] = filtered{span}
	}
	return f.SpanExporter.ExportSpans(ctx, allowlisted)
}

type filtered struct{ sdktrace.ReadOnlySpan }

func (f filtered) Attributes() []attribute.KeyValue {
	return slices.DeleteFunc(slices.Clone(f.ReadOnlySpan.Attributes()), func(a attribute.KeyValue) bool {
		return !slices.Contains(allowed, a.Key)
	})
}

// Events returns none, because those of libraries contain error texts.
func (filtered) Events() []sdktrace.Event { return nil }

// Status removes texts of libraries, which quote errors.
func (f filtered) Status() sdktrace.Status {
	status := f.ReadOnlySpan.Status()
	if f.InstrumentationScope().Name != scope {
		status.Description = ""
	}
	return status
}
