// Package refunds refunds orders, exactly once per idempotency key:
//
//	started         tx 1: claim the key, reserve the amount, insert the refund
//	refund_created  call: list the intent's refunds, then refund (money moves here);
//	                tx 2: record the refund, store the response
//	finished
package refunds

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/operations"
	"example.com/orders-api/orders"
)

// Service refunds orders. It is safe for concurrent use. One that only reads needs only Pool and Orders.
type Service struct {
	Pool   *pgxpool.Pool
	Orders *orders.Service
}

const path = "/v1/orders/{id}/refunds"

// Registration describes the operation for the API, the completer and operators.
func (s *Service) Registration() operations.Registration {
	return operations.Registration{
		Operation: createRefund{s},
		Path:      path,
		Member:    "refund",
		ID:        refundID,
		Get:       func(ctx context.Context, of operations.Target) (any, error) { return s.get(ctx, of) },
		List:      s.List,
		Table:     "refunds",
		Names:     []string{"provider_refund_id = $3"},
		// A refund without a key, such as the dashboard's, belongs to the history of its order's key.
		KeySQL: `coalesce(idempotency_key, (
           SELECT idempotency_key
             FROM orders AS o
            WHERE o.account_id = refunds.account_id
              AND o.id = refunds.order_id
       ))`,
	}
}
