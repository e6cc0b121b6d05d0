package orderstest

import (
	"context"

	"example.com/orders-api/idempotency"
)

// Refund executes POST /v1/orders/{id}/refunds without HTTP.
func (s *Shop) Refund(ctx context.Context, req idempotency.Request) (idempotency.Result, error) {
	return s.Engine.Do(ctx, req, s.Refunds.Operation())
}
