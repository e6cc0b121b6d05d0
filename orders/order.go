package orders

import (
	"cmp"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/payments"
)

// Status of an order.
type Status string

// The states of an order.
const (
	StatusPending           Status = "pending"
	StatusRequiresAction    Status = "requires_action" // the customer must approve the payment
	StatusPaid              Status = "paid"
	StatusPaymentFailed     Status = "payment_failed" // never charged
	StatusPartiallyRefunded Status = "partially_refunded"
	StatusRefunded          Status = "refunded"
)

// Paid reports whether the order was charged, also after refunds.
func (s Status) Paid() bool {
	return s == StatusPaid || s == StatusPartiallyRefunded || s == StatusRefunded
}

// Open reports whether the payment of the order is in progress.
func (s Status) Open() bool { return s == StatusPending || s == StatusRequiresAction }

// Order is an order as the API shows it, with amounts in the currency's smallest unit.
type Order struct {
	ID              uuid.UUID             `json:"id"`
	Status          Status                `json:"status"`
	Amount          int64                 `json:"amount"`
	AmountRefunded  int64                 `json:"amount_refunded"`
	Currency        string                `json:"currency"`
	Email           string                `json:"email"`
	Items           []Item                `json:"items"`
	PaymentIntentID *string               `json:"payment_intent_id"`
	Metadata        map[string]string     `json:"metadata"`
	CreatedAt       operations.Timestamp  `json:"created_at"`
	PaidAt          *operations.Timestamp `json:"paid_at"`
	Failure         *Failure              `json:"failure" db:"-"` // nil unless the status is payment_failed
	Reference       *string               `json:"reference"`
}

// Failure is why an order was not charged.
type Failure struct {
	Code        string  `json:"code"`
	DeclineCode *string `json:"decline_code"`
}

func orderPath(id uuid.UUID) string { return "/v1/orders/" + id.String() }

func orderID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("order", accountID, key)
}

// Slugs of the stored problems.
const (
	SlugPaymentDeclined = "payment-declined"
	SlugPaymentRefused  = "payment-refused"
)

// storedProblem is the response of a failed order or refund (R23).
type storedProblem struct {
	operations.Problem
	Code        string    `json:"code,omitempty"`
	DeclineCode string    `json:"decline_code,omitempty"`
	OrderID     uuid.UUID `json:"order_id"`
}

func (p storedProblem) finish(order uuid.UUID) (idempotency.Transition, error) {
	p.OrderID = order
	return operations.FinishProblem(p)
}

func declined(d payments.Decline) storedProblem {
	return storedProblem{
		Problem:     operations.NewProblem(SlugPaymentDeclined, 402, "The payment was declined", cmp.Or(d.Message, "The card was declined.")),
		Code:        cmp.Or(d.Code, "card_declined"), // a failed order requires a code
		DeclineCode: d.DeclineCode,
	}
}

func declinedBy(failed *payments.Error) storedProblem {
	return declined(payments.Decline{Code: failed.Code, DeclineCode: failed.DeclineCode, Message: failed.Message})
}

func refused(code, detail string) storedProblem {
	return storedProblem{Problem: operations.NewProblem(SlugPaymentRefused, 422, "The payment provider refused the request", detail), Code: code}
}

func refusedBy(failed *payments.Error) storedProblem {
	return refused(cmp.Or(failed.Code, "payment_refused"), cmp.Or(failed.Message, "The payment provider did not accept the request."))
}
