package payments

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// RefundStatus is the state of a refund. Stripe may add others; treat what you
// do not know as not settled.
type RefundStatus string

const (
	// RefundPending means that the money is under way, perhaps for days.
	RefundPending RefundStatus = "pending"
	// RefundRequiresAction means that the customer has to say where the money goes.
	// Cards never ask.
	RefundRequiresAction RefundStatus = "requires_action"
	// RefundSucceeded means that the money went to the card's bank, which may yet
	// send it back: then the refund fails.
	RefundSucceeded RefundStatus = "succeeded"
	// RefundFailed means that the money is the merchant's again. Final.
	RefundFailed RefundStatus = "failed"
	// RefundCanceled means that it will not be made. Final.
	RefundCanceled RefundStatus = "canceled"
)

// Refund is a refund as far as we need it.
type Refund struct {
	ID            string
	Status        RefundStatus
	Amount        int64  // in the currency's smallest unit
	Currency      string // lower case
	IntentID      string // empty for a charge that was made without an intent
	FailureReason string // such as expired_or_canceled_card, empty unless it failed
	Metadata      map[string]string
	Created       time.Time // by Stripe's clock, whole seconds
}

// Matches says whether the refund is the given one of ours: same intent, amount
// and currency, and our id in metadata["refund_id"].
func (r Refund) Matches(intentID string, amount int64, currency, refundID string) bool {
	return r.IntentID == intentID && r.Amount == amount && r.Currency == currency && r.Metadata["refund_id"] == refundID
}

// newRefund takes over what Stripe sent, or fails when it lacks what makes it an
// answer.
func newRefund(re *stripe.Refund) (Refund, error) {
	if re == nil || re.Object != "refund" || re.ID == "" || re.Status == "" || re.Amount <= 0 || re.Currency == "" {
		return Refund{}, fmt.Errorf("%w: not a whole refund", ErrUnreadable)
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

// RefundParams describe a refund. Under one key they must never change, or
// Stripe refuses the key (R4, R5).
type RefundParams struct {
	IntentID string
	Amount   int64  // in the currency's smallest unit
	Currency string // of the intent; the answer's is checked, it is not sent
	Reason   string // duplicate, fraudulent, requested_by_customer or empty
	Metadata map[string]string
}

// Refund gives money back. Unlike a confirm, which an intent takes once in its
// life, it is safe to repeat under the same key only, and only for as long as
// Stripe knows that key (R12). On any doubt: ListRefunds.
//
// Refused says that this call made no refund: too much, or one after the charge
// was refunded whole. It may be an earlier refund of ours that stands in its
// way, so list before believing it.
func (c *Client) Refund(ctx context.Context, key string, p RefundParams) (Refund, error) {
	if err := cmp.Or(checkKey(key), checkID(p.IntentID)); err != nil {
		return Refund{}, err
	}
	return c.refund(ctx, call{name: "refund", key: key, intentID: p.IntentID}, func(r Refund) bool {
		return r.IntentID == p.IntentID && r.Amount == p.Amount && r.Currency == p.Currency && maps.Equal(r.Metadata, p.Metadata)
	}, func(params stripe.Params) (*stripe.Refund, error) {
		return c.refunds.New(&stripe.RefundParams{
			Params:        params,
			PaymentIntent: stripe.String(p.IntentID),
			Amount:        stripe.Int64(p.Amount),
			Reason:        optional(p.Reason),
			Metadata:      p.Metadata,
		})
	})
}

// GetRefund reads the refund as it is now. It has no effect: Unknown and NotExecuted
// both mean that nothing was learnt.
func (c *Client) GetRefund(ctx context.Context, refundID string) (Refund, error) {
	if err := checkRefundID(refundID); err != nil {
		return Refund{}, err
	}
	return c.refund(ctx, call{name: "get refund"}, func(r Refund) bool { return r.ID == refundID },
		func(params stripe.Params) (*stripe.Refund, error) {
			return c.refunds.Get(refundID, &stripe.RefundParams{Params: params})
		})
}

func (c *Client) refund(ctx context.Context, call call, ours func(Refund) bool, send func(stripe.Params) (*stripe.Refund, error)) (Refund, error) {
	return ask(ctx, c, call, send, newRefund, ours)
}
