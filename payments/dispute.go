package payments

import (
	"context"
	"encoding/json"
	"net/http"
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

// ListDisputes returns all disputes of an intent. An error with [UnreadableIDs] comes with the others.
func (c *Client) ListDisputes(ctx context.Context, intentID string) ([]Dispute, error) {
	ofIntent := func(text []byte, _ http.Header) (Dispute, error) {
		var d struct {
			Object        string          `json:"object"`
			ID            string          `json:"id"`
			Status        string          `json:"status"`
			Amount        *int64          `json:"amount"`
			Currency      string          `json:"currency"`
			PaymentIntent reference       `json:"payment_intent"`
			Reason        lenient[string] `json:"reason"`
		}
		err := json.Unmarshal(text, &d)
		switch {
		case err != nil || d.Object != "dispute" || d.ID == "" || d.Status == "" || d.Amount == nil || d.Currency == "":
			return Dispute{}, unreadableObject(d.ID)
		case string(d.PaymentIntent) != intentID:
			return Dispute{}, ErrMismatch
		}
		return Dispute{printable(d.ID), printable(d.Status), *d.Amount, d.Currency, printable(d.Reason.value)}, nil
	}
	call := call{name: "list_disputes", intentID: intentID, method: http.MethodGet, path: "/v1/disputes"}
	return allPages(ctx, c, call, ofIntent, func(params stripe.ListParams) any {
		return &stripe.DisputeListParams{ListParams: params, PaymentIntent: &intentID}
	})
}
