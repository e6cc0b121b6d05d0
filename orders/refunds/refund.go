package refunds

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/currency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/changes"
	"example.com/orders-api/payments"
)

// Refund is a refund as the API shows it.
type Refund struct {
	ID               uuid.UUID             `json:"id"`
	OrderID          uuid.UUID             `json:"order_id"`
	Amount           int64                 `json:"amount"`
	Currency         string                `json:"currency"`
	Reason           *string               `json:"reason"`
	Status           payments.RefundStatus `json:"status"` // pending until the provider has it
	ProviderRefundID *string               `json:"provider_refund_id"`
	CreatedAt        httpjson.Timestamp    `json:"created_at"`
	Source           string                `json:"source"` // see changes.SourceProvider
	FailureReason    *string               `json:"failure_reason,omitempty"`
}

func refundID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("refund", accountID, key)
}

// Request has the members of POST /v1/orders/{id}/refunds.
type Request struct {
	Amount int64   // 0: the remaining amount
	Reason *string // nil: none
}

// DecodeRequest decodes a request like [orders.DecodeOrderRequest].
func DecodeRequest(canonical []byte) (Request, error) {
	in := httpjson.NewDecoder(canonical)
	request := Request{Amount: in.Integer("amount", httpjson.Optional, 1, currency.MaxAmount)}
	if reason := in.Text("reason", httpjson.Optional, 1, 500); reason != "" {
		request.Reason = &reason
		in.Check("reason", slices.Contains(changes.Reasons, reason), httpjson.CodeInvalidValue, "must be one of "+strings.Join(changes.Reasons, ", "))
	}
	return request, in.Err()
}

type row struct {
	Refund
	IntentID         string     `db:"payment_intent_id"`
	KeyNumber        int        `db:"provider_attempt"` // in the provider key, see recordThen
	ProviderSentAt   *time.Time // time of the last call that may have been executed, or nil
	ProviderFailedAt *time.Time // when the provider stored a 500 under our key
	CancelRequested  bool       // by an operator, see createRefund.Mark
}

// refundable returns the amount of a new refund. reserved is the sum of the order's other refunds.
func refundable(o orders.Order, requested, reserved int64) (int64, error) {
	remaining := o.Amount - reserved
	limits, _ := currency.Find(o.Currency)
	switch {
	case !o.Status.Paid(), remaining <= 0:
		return 0, &NotRefundableError{Status: o.Status}
	case requested == 0:
		return remaining, nil
	case requested > remaining:
		return 0, &ExceedsRemainingError{Remaining: remaining}
	case requested%limits.Step != 0:
		return 0, httpjson.Invalid("/amount", httpjson.CodeInvalidValue, fmt.Sprintf("must be a multiple of %d in %s", limits.Step, o.Currency))
	default:
		return requested, nil
	}
}

// matches reports whether the provider's refund is ours, with a known status.
func (r row) matches(at payments.Refund) bool {
	return at.Status.Known() && at.IntentID == r.IntentID && at.Amount == r.Amount && at.Currency == r.Currency &&
		payments.ParseMetadata(at.Metadata).RefundID == r.ID && (r.ProviderRefundID == nil || *r.ProviderRefundID == at.ID)
}

// NotRefundableError means that an order is not paid, or completely refunded.
type NotRefundableError struct {
	Status orders.Status // of the order
}

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
