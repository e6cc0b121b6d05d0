// Package refunds refunds orders, exactly once per idempotency key:
//
//	started         tx 1: claim the key, reserve the amount, insert the refund
//	refund_created  call: list the intent's refunds, then refund (money moves here);
//	                tx 2: record the refund, store the response
//	finished
package refunds

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// Service refunds orders. It is safe for concurrent use. One that only reads needs only Pool and Orders.
type Service struct {
	Pool   *pgxpool.Pool
	Orders *orders.Service
}

// The operation and its path.
const (
	Operation = "create_refund"
	Path      = orders.Path + "/{id}/refunds"
)

// Operation returns the operation, for the engine.
func (s *Service) Operation() idempotency.Operation { return createRefund{s} }
