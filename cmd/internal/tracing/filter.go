package tracing

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// allowed reports whether an attribute may leave the process. The libraries record
// more, and new attributes with each release: URLs, in which clients put keys, client
// addresses, error texts. The list has no server.address either: for a request it is
// the Host header, which the client wrote.
func allowed(name attribute.Key) bool {
	switch name {
	case keyID, operation, fromPoint, toPoint, attempt, orderID, requestID,
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

// filter is an exporter that drops all attributes that are not allowed.
type filter struct{ sdktrace.SpanExporter }

func (f filter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	allowlisted := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, span := range spans {
		allowlisted[i] = filtered{span}
	}
	return f.SpanExporter.ExportSpans(ctx, allowlisted)
}

// filtered is a span that returns only allowed attributes.
type filtered struct{ sdktrace.ReadOnlySpan }

func (f filtered) Attributes() []attribute.KeyValue { return onlyAllowed(f.ReadOnlySpan.Attributes()) }

func (f filtered) Events() []sdktrace.Event {
	events := slices.Clone(f.ReadOnlySpan.Events())
	for i := range events {
		events[i].Attributes = onlyAllowed(events[i].Attributes)
	}
	return events
}

// Links removes the trace state, which a client can set to anything.
func (f filtered) Links() []sdktrace.Link {
	links := slices.Clone(f.ReadOnlySpan.Links())
	for i := range links {
		links[i].SpanContext = links[i].SpanContext.WithTraceState(trace.TraceState{})
		links[i].Attributes = onlyAllowed(links[i].Attributes)
	}
	return links
}

// Status removes the texts of all spans but ours: libraries quote errors there.
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
