package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
)

const (
	keyID     = attribute.Key("orders.key_id")
	operation = attribute.Key("orders.operation")
	fromPoint = attribute.Key("orders.recovery_point.from")
	toPoint   = attribute.Key("orders.recovery_point.to")
	attempt   = attribute.Key("orders.attempt")
	orderID   = attribute.Key("orders.order_id")
	requestID = attribute.Key("orders.request_id")
)

// OnStep is for idempotency.Config: a span for each step, around next. The request's
// span and all spans inside the step get the id of the key.
func (t *Tracing) OnStep(next idempotency.StepHook) idempotency.StepHook {
	if t == nil {
		return next
	}
	return func(ctx context.Context, step idempotency.StepStart) (context.Context, func(idempotency.StepEnd)) {
		ctx, endSpan := t.startStep(ctx, step)
		ctx, endNext := next(ctx, step)
		return ctx, func(end idempotency.StepEnd) {
			endNext(end)
			endSpan(end)
		}
	}
}

func (t *Tracing) startStep(ctx context.Context, step idempotency.StepStart) (context.Context, func(idempotency.StepEnd)) {
	id := keyID.String(step.KeyID.String())
	trace.SpanFromContext(ctx).SetAttributes(id)
	ctx, span := t.tracer.Start(context.WithValue(ctx, keyIDContext{}, id), "step "+string(step.From), trace.WithAttributes(
		operation.String(step.Operation),
		attempt.Int(max(step.Attempt, 1)),
		fromPoint.String(string(step.From))))
	return ctx, func(end idempotency.StepEnd) {
		span.SetAttributes(toPoint.String(string(end.To)))
		setStatus(span, step, end)
		span.End()
	}
}

// setStatus marks the span of a failed step with the error that its key stores as
// last_error. An error during a claim may quote the client, so its text is left out. A
// claim that rejects its request is no failure.
func setStatus(span trace.Span, step idempotency.StepStart, end idempotency.StepEnd) {
	claim := step.Attempt == 0
	rejected := claim && end.Commit > 0 && !errors.Is(end.Err, postgres.ErrUnavailable)
	switch {
	case end.Err == nil, rejected:
	case claim:
		span.SetStatus(codes.Error, "")
	default:
		span.SetStatus(codes.Error, end.Err.Error())
	}
}

type keyIDContext struct{}

// keyIDs is a span processor that adds the id of the key, which operators search by, to
// every span inside a step.
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
