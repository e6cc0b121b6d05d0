package orders

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/events"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
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

// Operation is the name in each key's row.
const (
	Operation = "create_order"
	Path      = "/v1/orders"
)

// Registration describes the operation for the API, the completer and operators.
func (s *Service) Registration() operations.Registration {
	return operations.Registration{
		Operation: createOrder{s},
		Path:      Path,
		Member:    "order",
		ID:        orderID,
		Get: func(ctx context.Context, of operations.Target) (any, error) {
			return s.Get(ctx, of.AccountID, of.ID)
		},
		List:    s.List,
		Filters: []string{"reference"},
		Table:   "orders",
		Names: []string{
			"reference = $3",
			"payment_intent_id = $3",
			"disputes @> jsonb_build_array(jsonb_build_object('id', $3::text))",
			// Only an operator needs this. So it reads the table, a second for 2 million orders, instead of an
			// index that every order would have to write.
			`$3::text LIKE '%@%' AND lower(email COLLATE "C") = lower($3::text COLLATE "C")`,
		},
		CheckAction: s.checkAction,
	}
}
