package orders

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// Refund is a refund as the API shows it. Amount is in the currency's smallest unit.
type Refund struct {
	ID               uuid.UUID             `json:"id"`
	OrderID          uuid.UUID             `json:"order_id"`
	Amount           int64                 `json:"amount"`
	Currency         string                `json:"currency"`
	Reason           *string               `json:"reason"`
	Status           payments.RefundStatus `json:"status"` // pending until the provider has it
	ProviderRefundID *string               `json:"provider_refund_id"`
	CreatedAt        Timestamp             `json:"created_at"`
}

// RefundPath is the path of a refund.
func RefundPath(order, id uuid.UUID) string {
	return "/v1/orders/" + order.String() + "/refunds/" + id.String()
}

func refundID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("refund", accountID, key)
}

// RefundParams are the members of POST /v1/orders/{id}/refunds.
type RefundParams struct {
	Amount int64   // 0: the remaining amount
	Reason *string // nil: none
}

var refundReasons = []string{"duplicate", "fraudulent", "requested_by_customer"}

// DecodeRefundParams decodes a request like [DecodeParams].
func DecodeRefundParams(canonical []byte) (RefundParams, error) {
	in := NewDecoder(canonical)
	params := RefundParams{Amount: in.Integer("amount", Optional, maxAmount)}
	reason := in.Text("reason", Optional, 1, maxDescription)
	in.rejectUnknown()
	if reason != "" {
		params.Reason = &reason
		in.check("reason", slices.Contains(refundReasons, reason), CodeInvalidValue, "must be one of "+strings.Join(refundReasons, ", "))
	}
	return params, in.result()
}

type refundRow struct {
	Refund
	intentID         string     // of the order
	providerFailedAt *time.Time // when the provider stored a 500 under our key (R12)
}

// refundable returns the amount of a refund. requested is 0 for the remaining amount;
// reserved is the sum of the other refunds.
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

// matches reports whether the provider's refund is this one, with a known status.
func (r refundRow) matches(at payments.Refund) bool {
	known := []payments.RefundStatus{
		payments.RefundPending, payments.RefundRequiresAction, payments.RefundSucceeded, payments.RefundFailed, payments.RefundCanceled,
	}
	return slices.Contains(known, at.Status) && at.Matches(r.intentID, r.Amount, r.Currency, r.ID.String()) &&
		(r.ProviderRefundID == nil || *r.ProviderRefundID == at.ID)
}
