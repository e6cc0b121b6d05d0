package payments

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// Dispute is a dispute of a charge, or a bank's inquiry, in the API's form.
type Dispute struct {
	ID       string `json:"id"`
	Status   string `json:"status"` // Stripe's, such as needs_response
	Amount   int64  `json:"amount"` // in the currency's smallest unit, which may not be the charge's
	Currency string `json:"currency"`
	Reason   string `json:"reason"` // such as fraudulent
	IntentID string `json:"-"`      // "" for a charge without an intent
}

// ListDisputes returns all disputes of an intent. An error with [UnreadableIDs] comes with the others.
func (c *Client) ListDisputes(ctx context.Context, intentID string) ([]Dispute, error) {
	call := call{name: "list_disputes", intentID: intentID, method: http.MethodGet, path: disputesPath}
	return allPages(ctx, c, call, decodeDispute, func(params stripe.ListParams) any {
		return &stripe.DisputeListParams{ListParams: params, PaymentIntent: &intentID}
	})
}

// ListAllDisputes is [Client.List] for disputes.
func (c *Client) ListAllDisputes(ctx context.Context, since time.Time, after string) (disputes []Dispute, next string, err error) {
	call := call{name: "list_all_disputes", method: http.MethodGet, path: disputesPath}
	return page(ctx, c, call, after, decodeDispute, func(params stripe.ListParams) any {
		return &stripe.DisputeListParams{ListParams: params, CreatedRange: from(since)}
	})
}

const disputesPath = "/v1/disputes"

func decodeDispute(text []byte, _ http.Header) (Dispute, error) {
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
	if err != nil || d.Object != "dispute" || d.ID == "" || d.Status == "" || d.Amount == nil || d.Currency == "" {
		return Dispute{}, unreadableObject(d.ID)
	}
	return Dispute{
		ID: printable(d.ID), Status: printable(d.Status), Amount: *d.Amount, Currency: d.Currency, Reason: printable(d.Reason.value),
		IntentID: string(d.PaymentIntent),
	}, nil
}
