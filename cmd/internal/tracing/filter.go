package tracing

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// allowed reports whether an attribute may be exported. Libraries record more, and
// other attributes in each release: URLs with keys of clients, client addresses, error
// texts. server.address is not allowed: it is the Host header, which the client sets.
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

// filter exports only allowed attributes.
type filter struct{ sdktrace.SpanExporter }

func (f filter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	allowlisted := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, span := range spans {
		allowlisted[i] = filtered{span}
	}
	return f.SpanExporter.ExportSpans(ctx, allowlisted)
}

type filtered struct{ sdktrace.ReadOnlySpan }

func (f filtered) Attributes() []attribute.KeyValue { return onlyAllowed(f.ReadOnlySpan.Attributes()) }

func (f filtered) Events() []sdktrace.Event {
	events := slices.Clone(f.ReadOnlySpan.Events())
	for i := range events {
		events[i].Attributes = onlyAllowed(events[i].Attributes)
	}
	return events
}

// Links removes the trace state, which a client can set.
func (f filtered) Links() []sdktrace.Link {
	links := slices.Clone(f.ReadOnlySpan.Links())
	for i := range links {
		links[i].SpanContext = links[i].SpanContext.WithTraceState(trace.TraceState{})
		links[i].Attributes = onlyAllowed(links[i].Attributes)
	}
	return links
}

// Status removes texts of libraries, which quote errors.
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
