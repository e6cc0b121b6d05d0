package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"example.com/orders-api/idempotency"
)

// The attributes of our own spans.
const (
	keyID     = attribute.Key("orders.key_id")
	fromPoint = attribute.Key("orders.recovery_point.from")
	toPoint   = attribute.Key("orders.recovery_point.to")
	attempt   = attribute.Key("orders.attempt")
	orderID   = attribute.Key("orders.order_id")
	requestID = attribute.Key("orders.request_id")
)

// OnStep is for idempotency.Config: a span for each step. The status of a failed
// step has the error that its key stores as last_error; a step that claims the key
// fails with the client's own input, which the span does not show.
func (t *Tracing) OnStep(ctx context.Context, step idempotency.StepStart) (context.Context, func(idempotency.StepEnd)) {
	if t == nil {
		return ctx, func(idempotency.StepEnd) {}
	}
	ctx, span := t.tracer.Start(ctx, "step "+string(step.From), trace.WithAttributes(
		keyID.String(step.KeyID.String()),
		attempt.Int(max(step.Attempt, 1)),
		fromPoint.String(string(step.From))))
	return ctx, func(end idempotency.StepEnd) {
		span.SetAttributes(toPoint.String(string(end.To)))
		switch {
		case end.Err != nil && step.Attempt > 0:
			span.SetStatus(codes.Error, end.Err.Error())
		case end.Err != nil:
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}
