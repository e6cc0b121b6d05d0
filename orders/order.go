package orders

import (
	"cmp"
	"fmt"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/plainjson"
	"example.com/orders-api/payments"
)

// Status of an order.
type Status string

// The states of an order.
const (
	StatusPending           Status = "pending"         // no charge is recorded
	StatusRequiresAction    Status = "requires_action" // the customer must approve the payment
	StatusPaid              Status = "paid"
	StatusPaymentFailed     Status = "payment_failed" // declined or refused; never charged
	StatusPartiallyRefunded Status = "partially_refunded"
	StatusRefunded          Status = "refunded"
)

// Paid reports whether the order was charged. It stays true after refunds.
func (s Status) Paid() bool {
	return s == StatusPaid || s == StatusPartiallyRefunded || s == StatusRefunded
}

// Open reports whether the payment of the order is in progress.
func (s Status) Open() bool { return s == StatusPending || s == StatusRequiresAction }

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
	CreatedAt       Timestamp         `json:"created_at"`
	PaidAt          *Timestamp        `json:"paid_at"`
	Failure         *Failure          `json:"failure"` // nil unless the status is payment_failed
}

// Failure is the reason why an order was not charged, as in the stored response.
type Failure struct {
	Code        string  `json:"code"`
	DeclineCode *string `json:"decline_code"`
}

func orderID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("order", accountID, key)
}

// Slugs of the problems that are stored as responses, see package api.
const (
	SlugPaymentDeclined = "payment-declined"
	SlugPaymentRefused  = "payment-refused"
)

func finishCreated(location string, resource any) (idempotency.Outcome, error) {
	return finish(201, resource, map[string]string{"Content-Type": "application/json", "Location": location})
}

func finish(status int, body any, headers map[string]string) (idempotency.Outcome, error) {
	encoded, err := plainjson.Marshal(body)
	if err != nil {
		return idempotency.Outcome{}, fmt.Errorf("encode response: %w", err)
	}
	return idempotency.Finish(idempotency.Response{Status: status, Headers: headers, Body: encoded}), nil
}

// failure is the final reason why an order was not charged, or a refund not made (R23).
// It is the problem (RFC 9457) that is stored. It has no request_id, because the same
// bytes are replayed.
type failure struct {
	Type        string    `json:"type"`
	Title       string    `json:"title"`
	Status      int       `json:"status"`
	Detail      string    `json:"detail"`
	Retry       string    `json:"retry"`
	Outcome     string    `json:"outcome"`
	Code        string    `json:"code,omitempty"`
	DeclineCode string    `json:"decline_code,omitempty"`
	OrderID     uuid.UUID `json:"order_id"`
}

const problemMediaType = "application/problem+json"

func (f failure) finish(order uuid.UUID) (idempotency.Outcome, error) {
	f.Retry, f.Outcome, f.OrderID = "new-key", "final", order
	return finish(f.Status, f, map[string]string{"Content-Type": problemMediaType})
}

func declined(d payments.Decline) failure {
	return failure{
		Type:        "/problems/" + SlugPaymentDeclined,
		Title:       "The payment was declined",
		Status:      402,
		Detail:      cmp.Or(d.Message, "The card was declined."),
		Code:        cmp.Or(d.Code, "card_declined"), // a failed order requires a code
		DeclineCode: d.DeclineCode,
	}
}

func declinedBy(failed *payments.Error) failure {
	return declined(payments.Decline{Code: failed.Code, DeclineCode: failed.DeclineCode, Message: failed.Message})
}

func refused(code, detail string) failure {
	return failure{
		Type:   "/problems/" + SlugPaymentRefused,
		Title:  "The payment provider refused the request",
		Status: 422,
		Detail: detail,
		Code:   code,
	}
}

func refusedBy(failed *payments.Error) failure {
	return refused(cmp.Or(failed.Code, "payment_refused"), cmp.Or(failed.Message, "The payment provider did not accept the request."))
}
