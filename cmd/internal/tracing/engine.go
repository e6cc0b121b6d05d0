package tracing

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"example.com/orders-api/idempotency"
)

// What our own spans say.
const (
	keyID     = attribute.Key("orders.key_id")
	fromPoint = attribute.Key("orders.recovery_point.from")
	toPoint   = attribute.Key("orders.recovery_point.to")
	attempt   = attribute.Key("orders.attempt")
	replayed  = attribute.Key("orders.replayed")
	response  = attribute.Key("orders.response.status")
	orderID   = attribute.Key("orders.order_id")
	requestID = attribute.Key("orders.request_id")
)

// Engine is for idempotency.Config.
func (t *Tracing) Engine() idempotency.Tracer {
	if t == nil {
		return nil
	}
	return engine{t.tracer}
}

// engine is the engine's tracer.
type engine struct{ tracer trace.Tracer }

func (e engine) Start(ctx context.Context, span idempotency.Span) context.Context {
	name := strings.TrimSuffix(string(span.Kind)+" "+span.Name, " ")
	ctx, _ = e.tracer.Start(ctx, name)
	return ctx
}

// End says why a run went no further in the words that its key keeps as its
// last_error. A request that was refused before it had a run gets none: what is
// wrong with it is said in the client's own words.
func (engine) End(ctx context.Context, result idempotency.Result, err error) {
	span := trace.SpanFromContext(ctx)
	if result.KeyID != uuid.Nil {
		span.SetAttributes(keyID.String(result.KeyID.String()))
	}
	if result.Attempt > 0 {
		span.SetAttributes(
			attempt.Int(result.Attempt),
			fromPoint.String(string(result.From)),
			toPoint.String(string(result.To)))
	}
	if result.Response.Status != 0 {
		span.SetAttributes(response.Int(result.Response.Status), replayed.Bool(result.Replayed))
	}
	switch {
	case err != nil && result.Attempt > 0:
		span.SetStatus(codes.Error, err.Error())
	case err != nil:
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
