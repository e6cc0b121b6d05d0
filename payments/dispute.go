package payments

import (
	"context"
	"fmt"
	"slices"

	"github.com/stripe/stripe-go/v79"
)

// Dispute is a dispute of a charge, or a bank's inquiry, in the API's form.
type Dispute struct {
	ID       string `json:"id"`
	Status   string `json:"status"` // Stripe's, such as needs_response
	Amount   int64  `json:"amount"` // in the currency's smallest unit, which may not be the charge's
	Currency string `json:"currency"`
	Reason   string `json:"reason"` // such as fraudulent
}

// Open reports whether the dispute is undecided.
func (d Dispute) Open() bool {
	return !slices.Contains([]string{"won", "lost", "warning_closed", "prevented"}, d.Status)
}

// ListDisputes returns all disputes of an intent.
func (c *Client) ListDisputes(ctx context.Context, intentID string) ([]Dispute, error) {
	ofIntent := func(d *stripe.Dispute) (Dispute, error) {
		switch {
		case d == nil || d.Object != "dispute" || d.ID == "" || d.Status == "" || d.Currency == "":
			return Dispute{}, fmt.Errorf("%w: not a complete dispute", ErrUnreadable)
		case d.PaymentIntent == nil || d.PaymentIntent.ID != intentID:
			return Dispute{}, ErrMismatch
		}
		return Dispute{printable(d.ID), printable(string(d.Status)), d.Amount, string(d.Currency), printable(string(d.Reason))}, nil
	}
	return allPages(ctx, c, call{name: "list_disputes", intentID: intentID}, ofIntent, func(params stripe.ListParams) ([]*stripe.Dispute, bool, error) {
		it := c.disputes.List(&stripe.DisputeListParams{ListParams: params, PaymentIntent: &intentID})
		return it.DisputeList().Data, it.DisputeList().HasMore, it.Err()
	})
}
