package tracing

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// allowed are the attributes that leave the process. The libraries record more,
// and with each release something else: addresses, in which clients put their
// keys, the clients' own addresses, the texts of errors. What is not known to be
// harmless stays here. The address of a server is not: of a request it is what the
// client wrote.
func allowed(name attribute.Key) bool {
	switch name {
	case keyID, fromPoint, toPoint, attempt, orderID, requestID,
		"http.request.method", "http.response.status_code", "http.route",
		"http.request.body.size", "http.response.body.size",
		"network.protocol.version", "url.scheme",
		"db.system.name", "db.query.text", "db.operation.name",
		"db.operation.batch.size", "db.response.status_code", "db.response.returned_rows",
		"pgx.rows_affected", "pgx.sql_state",
		"error.type", "exception.type":
		return true
	}
	return false
}

// filter is an exporter that drops what is not allowed.
type filter struct{ sdktrace.SpanExporter }

func (f filter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	harmless := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, span := range spans {
		harmless[i] = filtered{span}
	}
	return f.SpanExporter.ExportSpans(ctx, harmless)
}

// filtered is a span of which only what is allowed can be read.
type filtered struct{ sdktrace.ReadOnlySpan }

func (f filtered) Attributes() []attribute.KeyValue { return onlyAllowed(f.ReadOnlySpan.Attributes()) }

func (f filtered) Events() []sdktrace.Event {
	events := slices.Clone(f.ReadOnlySpan.Events())
	for i := range events {
		events[i].Attributes = onlyAllowed(events[i].Attributes)
	}
	return events
}

// Links leaves out the trace state, in which a client can write what it likes.
func (f filtered) Links() []sdktrace.Link {
	links := slices.Clone(f.ReadOnlySpan.Links())
	for i := range links {
		links[i].SpanContext = links[i].SpanContext.WithTraceState(trace.TraceState{})
		links[i].Attributes = onlyAllowed(links[i].Attributes)
	}
	return links
}

// Status keeps the texts of our own spans only.
func (f filtered) Status() sdktrace.Status {
	status := f.ReadOnlySpan.Status()
	if f.InstrumentationScope().Name != scope {
		status.Description = ""
	}
	return status
}

func onlyAllowed(attributes []attribute.KeyValue) []attribute.KeyValue {
	return slices.DeleteFunc(slices.Clone(attributes), func(a attribute.KeyValue) bool { return !allowed(a.Key) })
}
