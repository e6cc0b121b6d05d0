package client

import (
	"context"
	"time"
)

// RefundParams are the parameters of a refund.
type RefundParams struct {
	Amount int64  `json:"amount,omitempty"` // 0: the whole rest
	Reason string `json:"reason,omitempty"`
}

// Refund is a refund.
type Refund struct {
	ID               string    `json:"id"`
	OrderID          string    `json:"order_id"`
	Amount           int64     `json:"amount"`
	Currency         string    `json:"currency"`
	Reason           string    `json:"reason"`
	Status           string    `json:"status"`
	ProviderRefundID string    `json:"provider_refund_id"` // at Stripe
	CreatedAt        time.Time `json:"created_at"`
}

// CreateRefund refunds an order, in full or in part, exactly once per key. Each refund
// of an order has a key of its own. See [Client.Do].
func (c *Client) CreateRefund(ctx context.Context, key Key, orderID string, params RefundParams) (Refund, error) {
	path, err := orderPath(orderID)
	if err != nil {
		return Refund{}, err
	}
	return create[Refund](ctx, c, key, path+"/refunds", params)
}
