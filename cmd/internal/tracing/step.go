package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"example.com/orders-api/idempotency"
)

const (
	keyID     = attribute.Key("orders.key_id")
	operation = attribute.Key("orders.operation")
	fromPoint = attribute.Key("orders.recovery_point.from")
	toPoint   = attribute.Key("orders.recovery_point.to")
	attempt   = attribute.Key("orders.attempt")
	requestID = attribute.Key("orders.request_id")
)

// OnStep adds a span for each step, around next. A failed step has the error that its key
// stores, but that of a claim may quote the client.
func (t *Tracing) OnStep(next idempotency.StepHook) idempotency.StepHook {
	if t == nil {
		return next
	}
	return func(ctx context.Context, step idempotency.StepStart) (context.Context, func(idempotency.StepEnd)) {
		id := keyID.String(step.KeyID.String())
		trace.SpanFromContext(ctx).SetAttributes(id)
		ctx, span := t.tracer.Start(context.WithValue(ctx, keyIDContext{}, id), "step "+string(step.From), trace.WithAttributes(
			operation.String(step.Operation),
			attempt.Int(max(step.Attempt, 1)),
			fromPoint.String(string(step.From))))
		ctx, endNext := next(ctx, step)
		return ctx, func(end idempotency.StepEnd) {
			endNext(end)
			span.SetAttributes(toPoint.String(string(end.To)))
			if claim := step.Attempt == 0; end.Err != nil && !claim {
				span.SetStatus(codes.Error, end.Err.Error())
			}
			span.End()
		}
	}
}

type keyIDContext struct{}

// keyIDs adds the key's id, by which operators search, to every span of a step.
type keyIDs struct{}

// OnStart is part of sdktrace.SpanProcessor.
func (keyIDs) OnStart(ctx context.Context, span sdktrace.ReadWriteSpan) {
	if id, known := ctx.Value(keyIDContext{}).(attribute.KeyValue); known {
		span.SetAttributes(id)
	}
}

// OnEnd is part of sdktrace.SpanProcessor.
func (keyIDs) OnEnd(sdktrace.ReadOnlySpan) {}

// Shutdown is part of sdktrace.SpanProcessor.
func (keyIDs) Shutdown(context.Context) error { return nil }

// ForceFlush is part of sdktrace.SpanProcessor.
func (keyIDs) ForceFlush(context.Context) error { return nil }
