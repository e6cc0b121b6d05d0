package tracing

import (
	"context"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ConfigurePool adds a span for each statement or batch inside a trace, without its
// arguments.
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
