package orders

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
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
	CreatedAt        operations.Timestamp  `json:"created_at"`
}

func refundPath(order, id uuid.UUID) string { return orderPath(order) + "/refunds/" + id.String() }

func refundID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("refund", accountID, key)
}

// RefundRequest has the members of POST /v1/orders/{id}/refunds.
type RefundRequest struct {
	Amount int64   // 0: the remaining amount
	Reason *string // nil: none
}

var refundReasons = []string{"duplicate", "fraudulent", "requested_by_customer"}

// DecodeRefundRequest decodes a request like [DecodeOrderRequest].
func DecodeRefundRequest(canonical []byte) (RefundRequest, error) {
	in := operations.NewDecoder(canonical)
	request := RefundRequest{Amount: in.Integer("amount", operations.Optional, maxAmount)}
	reason := in.Text("reason", operations.Optional, 1, maxDescription)
	if reason != "" {
		request.Reason = &reason
		in.Check("reason", slices.Contains(refundReasons, reason), operations.CodeInvalidValue, "must be one of "+strings.Join(refundReasons, ", "))
	}
	return request, in.Err()
}

type refundRow struct {
	Refund
	IntentID         string     `db:"payment_intent_id"`
	ProviderFailedAt *time.Time // when the provider stored a 500 under our key (R12)
}

// refundable returns the amount of a refund beside those that have reserved theirs.
func (o Order) refundable(requested, reserved int64) (int64, error) {
	remaining := o.Amount - reserved
	switch {
	case !o.Status.Paid(), remaining <= 0:
		return 0, &NotRefundableError{Status: o.Status}
	case requested == 0:
		return remaining, nil
	case requested > remaining:
		return 0, &ExceedsRemainingError{Remaining: remaining}
	default:
		return requested, nil
	}
}

// matches reports whether the provider's refund is ours, with a known status.
func (r refundRow) matches(at payments.Refund) bool {
	known := []payments.RefundStatus{
		payments.RefundPending, payments.RefundRequiresAction, payments.RefundSucceeded, payments.RefundFailed, payments.RefundCanceled,
	}
	return slices.Contains(known, at.Status) && at.Matches(r.IntentID, r.Amount, r.Currency, r.ID.String()) &&
		(r.ProviderRefundID == nil || *r.ProviderRefundID == at.ID)
}
