package client

import (
	"context"
	"net/url"
	"time"
)

// RefundParams are the parameters of a refund.
type RefundParams struct {
	Amount int64  `json:"amount,omitempty"` // 0 means all that remains
	Reason string `json:"reason,omitempty"`
}

// Refund is a refund as the API returns it.
type Refund struct {
	ID               string    `json:"id"`
	OrderID          string    `json:"order_id"`
	Amount           int64     `json:"amount"`
	Currency         string    `json:"currency"`
	Reason           string    `json:"reason"`
	Status           string    `json:"status"`
	ProviderRefundID string    `json:"provider_refund_id"` // Stripe's id
	Source           string    `json:"source"`             // api, or provider if it was made in Stripe's dashboard
	FailureReason    string    `json:"failure_reason"`     // "" unless it failed
	CreatedAt        time.Time `json:"created_at"`
}

// CreateRefund refunds an order once per key, see [Client.Do]. Each refund has its own key.
func (c *Client) CreateRefund(ctx context.Context, key Key, orderID string, params RefundParams) (Refund, error) {
	return post[Refund](ctx, c, Request{Key: key, Path: "/v1/orders/" + url.PathEscape(orderID) + "/refunds"}, params)
}

// GetRefund reads a refund. For unknown ids it returns a [*Problem].
func (c *Client) GetRefund(ctx context.Context, orderID, id string) (Refund, error) {
	return read[Refund](ctx, c, "/v1/orders/"+url.PathEscape(orderID)+"/refunds/"+url.PathEscape(id))
}
