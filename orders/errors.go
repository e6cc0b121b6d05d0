package orders

import (
	"fmt"

	"github.com/google/uuid"
)

// NotRefundableError means that an order is not paid, or completely refunded.
type NotRefundableError struct {
	Status Status // of the order
}

// Pending reports whether the same request may succeed later.
func (e *NotRefundableError) Pending() bool { return e.Status.Open() }

func (e *NotRefundableError) Error() string {
	return "nothing can be refunded of an order that is " + string(e.Status)
}

// ExceedsRemainingError means that a refund exceeds the remaining amount of its order.
type ExceedsRemainingError struct {
	Remaining int64 // at least 1
}

func (e *ExceedsRemainingError) Error() string {
	return fmt.Sprintf("at most %d of the order can be refunded", e.Remaining)
}

// OrderExistsError means that another order has the reference (R26).
type OrderExistsError struct{ OrderID uuid.UUID }

func (e *OrderExistsError) Error() string {
	return "order " + e.OrderID.String() + " has this reference"
}
