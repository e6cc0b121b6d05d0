package orders

import (
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

// Status of an order.
type Status string

// The states of an order.
const (
	StatusPending           Status = "pending" // not charged yet, as far as we know
	StatusPaid              Status = "paid"
	StatusPaymentFailed     Status = "payment_failed" // declined or refused; never charged
	StatusPartiallyRefunded Status = "partially_refunded"
	StatusRefunded          Status = "refunded"
)

// Paid reports whether the order was charged. It stays true after refunds.
func (s Status) Paid() bool {
	return s == StatusPaid || s == StatusPartiallyRefunded || s == StatusRefunded
}

// Order is an order as the API shows it. Amounts are in the currency's smallest
// unit.
type Order struct {
	ID              uuid.UUID         `json:"id"`
	Status          Status            `json:"status"`
	Amount          int64             `json:"amount"`
	AmountRefunded  int64             `json:"amount_refunded"`
	Currency        string            `json:"currency"`
	Email           string            `json:"email"`
	Items           []Item            `json:"items"`
	PaymentIntentID *string           `json:"payment_intent_id"`
	Metadata        map[string]string `json:"metadata"`
	CreatedAt       time.Time         `json:"created_at"`
	PaidAt          *time.Time        `json:"paid_at"`
}

// orderID is the id of the order that a key creates (R5).
func orderID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("order", accountID, key)
}
