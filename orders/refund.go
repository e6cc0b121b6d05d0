package orders

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// RefundStatus is the state of a refund.
type RefundStatus string

// The states a refund can be in. One that succeeded may fail later, when the
// card's bank sends the money back.
const (
	RefundPending        RefundStatus = "pending"         // about to be made, or the money is under way
	RefundRequiresAction RefundStatus = "requires_action" // the customer must say where the money goes
	RefundSucceeded      RefundStatus = "succeeded"
	RefundFailed         RefundStatus = "failed"   // no money went back, or it came back to us
	RefundCanceled       RefundStatus = "canceled" // at the provider
)

// Void reports whether the refund returns no money and never will.
func (s RefundStatus) Void() bool { return s == RefundFailed || s == RefundCanceled }

// Refund is a refund as the API shows it. Amount is in the currency's smallest
// unit.
type Refund struct {
	ID        uuid.UUID    `json:"id"`
	OrderID   uuid.UUID    `json:"order_id"`
	Amount    int64        `json:"amount"`
	Currency  string       `json:"currency"`
	Reason    *string      `json:"reason"`
	Status    RefundStatus `json:"status"`
	RefundID  *string      `json:"refund_id"` // the provider's
	CreatedAt time.Time    `json:"created_at"`
}

// href is the refund's address.
func (r Refund) href() string { return RefundPath(r.OrderID, r.ID) }

// RefundPath is the address of a refund.
func RefundPath(order, id uuid.UUID) string {
	return "/v1/orders/" + order.String() + "/refunds/" + id.String()
}

// refundID is the id of the refund that a key makes (R5).
func refundID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("refund", accountID, key)
}

// RefundParams is what a client asks for: the members of
// POST /v1/orders/{id}/refunds.
type RefundParams struct {
	Amount int64  // 0: all that is left
	Reason string // "": none
}

// refundReasons are those that the provider knows.
var refundReasons = []string{"duplicate", "fraudulent", "requested_by_customer"}

// DecodeRefundParams reads a request from its canonical JSON, as strictly as
// [DecodeParams] does.
func DecodeRefundParams(canonical []byte) (RefundParams, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &members); err != nil {
		return RefundParams{}, fmt.Errorf("decode refund: %w", err)
	}
	in := &reader{}
	params := RefundParams{
		Amount: in.integer(members, "", "amount", optional, maxAmount),
		Reason: in.text(members, "", "reason", optional, 1, maxDescription),
	}
	in.unknown(members, "", "amount", "reason")
	if params.Reason != "" {
		in.check("/reason", params.Reason, func(reason string) bool { return slices.Contains(refundReasons, reason) },
			"must be one of "+strings.Join(refundReasons, ", "))
	}
	if len(in.faults) > 0 {
		return RefundParams{}, &ValidationError{Fields: in.faults}
	}
	return params, nil
}

// refundRow is a refund with what only the making of it needs.
type refundRow struct {
	Refund
	intentID         string     // of the order
	providerFailedAt *time.Time // when the provider kept a 500 under our key (R12)
}

// metadata is what the provider keeps with the refund. Events come back with it:
// see namedBy.
func (r refundRow) metadata(accountID, keyID uuid.UUID) map[string]string {
	return map[string]string{
		"account_id":         accountID.String(),
		"order_id":           r.OrderID.String(),
		"refund_id":          r.ID.String(),
		"idempotency_key_id": keyID.String(),
	}
}

// madeAs says whether a refund at the provider is this one, and in a state that
// we know.
func (r refundRow) madeAs(at payments.Refund) bool {
	switch at.Status {
	case payments.RefundPending, payments.RefundRequiresAction, payments.RefundSucceeded,
		payments.RefundFailed, payments.RefundCanceled:
		return at.Matches(r.intentID, r.Amount, r.Currency, r.ID.String()) && (r.RefundID == nil || *r.RefundID == at.ID)
	default:
		return false
	}
}
