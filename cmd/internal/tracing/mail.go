package tracing

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"example.com/orders-api/receipts"
)

// Mailer returns next with a span around each receipt.
func (t *Tracing) Mailer(next receipts.Mailer) receipts.Mailer {
	if t == nil {
		return next
	}
	return mailer{next, t.tracer}
}

type mailer struct {
	next   receipts.Mailer
	tracer trace.Tracer
}

func (m mailer) Send(ctx context.Context, message receipts.Message) error {
	ctx, span := m.tracer.Start(ctx, "send receipt",
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(orderID.String(message.OrderID.String())))
	defer span.End()
	err := m.next.Send(ctx, message)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}
