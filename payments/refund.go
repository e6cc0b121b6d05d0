package payments

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// RefundStatus is the state of a refund. Treat unknown values as not final.
type RefundStatus string

// States of a refund.
const (
	RefundPending        RefundStatus = "pending"
	RefundRequiresAction RefundStatus = "requires_action" // not for cards
	RefundSucceeded      RefundStatus = "succeeded"       // the bank may still return it: RefundFailed
	RefundFailed         RefundStatus = "failed"          // final, like canceled
	RefundCanceled       RefundStatus = "canceled"
)

// Known reports whether the status is one of these.
func (s RefundStatus) Known() bool {
	return slices.Contains([]RefundStatus{RefundPending, RefundRequiresAction, RefundSucceeded, RefundFailed, RefundCanceled}, s)
}

// Void reports whether the refund will never return money.
func (s RefundStatus) Void() bool { return s == RefundFailed || s == RefundCanceled }

// Refund is a refund of a charge.
type Refund struct {
	ID            string
	Status        RefundStatus
	Amount        int64
	Currency      string
	IntentID      string // empty for a charge without an intent
	Reason        string // as requested, "" if none was
	FailureReason string // such as expired_or_canceled_card
	Metadata      map[string]string
	Created       time.Time
}

// RefundParams are the parameters of a refund.
type RefundParams struct {
	IntentID string
	Amount   int64
	Currency string  // only compared with the response
	Reason   *string // or nil
	Metadata map[string]string
}

func (p RefundParams) match(r Refund) bool {
	return r.IntentID == p.IntentID && r.Amount == p.Amount && r.Currency == p.Currency && maps.Equal(r.Metadata, p.Metadata)
}

const refundsPath = "/v1/refunds"

// Refund refunds a charge or a part of it. Call ListRefunds first: a repetition is safe only while
// Stripe knows the key, and a refusal may be the effect of an earlier refund (R12, read first).
func (c *Client) Refund(ctx context.Context, key string, p RefundParams) (Refund, error) {
	call := call{name: "refund", key: key, intentID: p.IntentID, method: http.MethodPost, path: refundsPath, params: &stripe.RefundParams{
		PaymentIntent: stripe.String(p.IntentID),
		Amount:        stripe.Int64(p.Amount),
		Reason:        p.Reason,
		Metadata:      p.Metadata,
	}}
	return do(ctx, c, call, decodeRefund, p.match)
}

func decodeRefund(text []byte, _ http.Header) (Refund, error) {
	var re struct {
		Object        string            `json:"object"`
		ID            string            `json:"id"`
		Status        RefundStatus      `json:"status"`
		Amount        int64             `json:"amount"`
		Currency      string            `json:"currency"`
		PaymentIntent reference         `json:"payment_intent"`
		Metadata      map[string]string `json:"metadata"`

		Reason        lenient[string] `json:"reason"`
		FailureReason lenient[string] `json:"failure_reason"`
		Created       lenient[int64]  `json:"created"`
	}
	err := json.Unmarshal(text, &re)
	if err != nil || re.Object != "refund" || re.ID == "" || re.Status == "" || re.Amount <= 0 || re.Currency == "" {
		return Refund{}, unreadableObject(re.ID)
	}
	return Refund{
		ID:            re.ID,
		Status:        re.Status,
		Amount:        re.Amount,
		Currency:      re.Currency,
		IntentID:      string(re.PaymentIntent),
		Reason:        printable(re.Reason.value),
		FailureReason: printable(re.FailureReason.value),
		Metadata:      re.Metadata,
		Created:       time.Unix(re.Created.value, 0).UTC(),
	}, nil
}

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
