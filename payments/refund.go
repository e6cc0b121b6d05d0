package payments

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// RefundStatus is the state of a refund. Treat unknown values as not final.
type RefundStatus string

// States of a refund.
const (
	RefundPending        RefundStatus = "pending"         // possibly for days
	RefundRequiresAction RefundStatus = "requires_action" // not for cards
	RefundSucceeded      RefundStatus = "succeeded"       // the bank may still return it: RefundFailed
	RefundFailed         RefundStatus = "failed"          // the merchant has the money again; final
	RefundCanceled       RefundStatus = "canceled"        // final
)

// Void reports whether the refund will never return money.
func (s RefundStatus) Void() bool { return s == RefundFailed || s == RefundCanceled }

// Refund is a refund of a charge.
type Refund struct {
	ID            string
	Status        RefundStatus
	Amount        int64
	Currency      string
	IntentID      string // empty for a charge without an intent
	FailureReason string // such as expired_or_canceled_card
	Metadata      map[string]string
	Created       time.Time
}

// Matches reports whether this is our refund with the given id.
func (r Refund) Matches(intentID string, amount int64, currency, refundID string) bool {
	return r.IntentID == intentID && r.Amount == amount && r.Currency == currency && r.Metadata["refund_id"] == refundID
}

// RefundParams are the parameters of a refund.
type RefundParams struct {
	IntentID string
	Amount   int64
	Currency string // not sent, but the response must have it
	Reason   string // duplicate, fraudulent, requested_by_customer or empty
	Metadata map[string]string
}

func (p RefundParams) match(r Refund) bool {
	return r.IntentID == p.IntentID && r.Amount == p.Amount && r.Currency == p.Currency && maps.Equal(r.Metadata, p.Metadata)
}

// Refund refunds a charge, in full or in part. A repetition is safe only with the same key,
// while Stripe knows it (R12), and an earlier refund of ours may be the reason for Refused.
// In both cases call ListRefunds first.
func (c *Client) Refund(ctx context.Context, key string, p RefundParams) (Refund, error) {
	refund := call{name: "refund", key: key, intentID: p.IntentID, invalid: cmp.Or(checkKey(key), checkID(p.IntentID, "pi_"))}
	return do(ctx, c, refund, newRefund, p.match, func(params stripe.Params) (*stripe.Refund, error) {
		return c.refunds.New(&stripe.RefundParams{
			Params:        params,
			PaymentIntent: stripe.String(p.IntentID),
			Amount:        stripe.Int64(p.Amount),
			Reason:        optional(p.Reason),
			Metadata:      p.Metadata,
		})
	})
}

// GetRefund reads the refund's state.
func (c *Client) GetRefund(ctx context.Context, refundID string) (Refund, error) {
	get := call{name: "get refund", invalid: checkID(refundID, "re_", "pyr_")} // of cards, and of other methods
	return do(ctx, c, get, newRefund, hasID[Refund](refundID), func(params stripe.Params) (*stripe.Refund, error) {
		return c.refunds.Get(refundID, &stripe.RefundParams{Params: params})
	})
}

func newRefund(re *stripe.Refund) (Refund, error) {
	if re == nil || re.Object != "refund" || re.ID == "" || re.Status == "" || re.Amount <= 0 || re.Currency == "" {
		return Refund{}, fmt.Errorf("%w: not a complete refund", ErrUnreadable)
	}
	refund := Refund{
		ID:            re.ID,
		Status:        RefundStatus(re.Status),
		Amount:        re.Amount,
		Currency:      string(re.Currency),
		FailureReason: printable(string(re.FailureReason)),
		Metadata:      re.Metadata,
		Created:       time.Unix(re.Created, 0).UTC(),
	}
	if re.PaymentIntent != nil {
		refund.IntentID = re.PaymentIntent.ID
	}
	return refund, nil
}
