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
	CreatedAt        time.Time `json:"created_at"`
}

// CreateRefund refunds an order once per key, see [Client.Do]. Each refund has its own key.
func (c *Client) CreateRefund(ctx context.Context, key Key, orderID string, params RefundParams) (Refund, error) {
	return create[Refund](ctx, c, key, "/v1/orders/"+url.PathEscape(orderID)+"/refunds", params)
}
