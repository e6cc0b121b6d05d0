package orders

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/events"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// Service creates and reads orders. It is safe for concurrent use. One that only reads needs only Pool.
type Service struct {
	Payments     *payments.Client
	Logger       *slog.Logger
	Pool         *pgxpool.Pool
	Engine       *idempotency.Engine
	ChargeWindow time.Duration // an order of this age is not charged any more (R24, charge window)
	Events       events.Stager
}

// The operations and their path.
const (
	CreateOperation = "create_order"
	CancelOperation = "cancel_order"
	Path            = "/v1/orders"
)

// Operations returns the operations of orders, for the engine.
func (s *Service) Operations() []idempotency.Operation {
	return []idempotency.Operation{createOrder{s}, cancelOrder{s}}
}
