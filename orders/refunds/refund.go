package refunds

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/reconcile"
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
	Source           string                `json:"source"` // see reconcile.SourceProvider
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
	request := Request{Amount: in.Integer("amount", httpjson.Optional, 1, payments.MaxAmount)}
	if reason := in.Text("reason", httpjson.Optional, 1, 500); reason != "" {
		request.Reason = &reason
		in.Check("reason", slices.Contains(reconcile.Reasons, reason), httpjson.CodeInvalidValue, "must be one of "+strings.Join(reconcile.Reasons, ", "))
	}
	return request, in.Err()
}

type row struct {
	Refund
	IntentID         string     `db:"payment_intent_id"`
	KeyNumber        int        `db:"provider_key_number"` // in the provider key of the next call
	ProviderSentAt   *time.Time // time of the last call that may have been executed, or nil
	ProviderFailedAt *time.Time // when the provider stored a 500 under our key
	CancelRequested  bool       // by an operator, see createRefund.Mark
}

const notRefundable = "order-not-refundable"

// refundable returns the amount of a new refund. reserved is the sum of the order's other refunds.
func refundable(o orders.Order, requested, reserved int64) (int64, error) {
	remaining := o.Amount - reserved
	limits, _ := payments.FindCurrency(o.Currency)
	switch {
	case o.Status.Open():
		return 0, &httpjson.Rejection{
			Slug: notRefundable, Detail: "The payment of the order is in progress. Send the same request again shortly.", Soon: true,
		}
	case !o.Status.Paid():
		return 0, &httpjson.Rejection{Slug: notRefundable, Detail: "The payment of the order failed, so there is nothing to refund."}
	case remaining <= 0:
		return 0, &httpjson.Rejection{Slug: notRefundable, Detail: "The order is refunded in full. Refunds in progress count as refunded."}
	case requested == 0:
		return remaining, nil
	case requested > remaining:
		return 0, &httpjson.Rejection{
			Slug: "refund-exceeds-remaining", Detail: "Send an amount of at most what remains, or omit it to refund all of that.", Remaining: remaining,
		}
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
