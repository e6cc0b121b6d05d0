package tracing

import (
	"context"
	"strings"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
)

// ConfigurePool adds a span for each statement inside a trace, with its text and
// without its arguments.
func (t *Tracing) ConfigurePool(config *pgxpool.Config) {
	if t == nil {
		return
	}
	tracer := otelpgx.NewTracer(
		otelpgx.WithTracerProvider(t.provider),
		otelpgx.WithDisableConnectionDetailsInAttributes())
	config.ConnConfig.Tracer = statements{tracer, tracer}
}

// statements traces queries and batches. Connecting and preparing show as a gap before
// them.
type statements struct {
	pgx.QueryTracer
	pgx.BatchTracer
}

// TraceBatchStart adds the texts of all statements to the span of their batch, which is
// one round trip.
func (s statements) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	outside := trace.SpanFromContext(ctx)
	ctx = s.BatchTracer.TraceBatchStart(ctx, conn, data)
	if span := trace.SpanFromContext(ctx); span != outside && data.Batch != nil {
		texts := make([]string, len(data.Batch.QueuedQueries))
		for i, query := range data.Batch.QueuedQueries {
			texts[i] = strings.TrimSpace(query.SQL)
		}
		span.SetName("batch")
		span.SetAttributes(semconv.DBQueryText(strings.Join(texts, ";\n")))
	}
	return ctx
}

// TraceBatchQuery does nothing, see TraceBatchStart.
func (statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
