package client

import (
	"context"
	"time"
)

// RefundParams say how much of an order goes back.
type RefundParams struct {
	Amount int64  `json:"amount,omitempty"` // 0: all that is left
	Reason string `json:"reason,omitempty"`
}

// Refund is a refund as the API tells it.
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

// CreateRefund pays money of an order back, once. The key names this refund: a
// second refund of the same order is another intent and has a key of its own.
// See [Client.Do] for the errors.
func (c *Client) CreateRefund(ctx context.Context, key Key, orderID string, params RefundParams) (Refund, error) {
	path, err := orderPath(orderID)
	if err != nil {
		return Refund{}, err
	}
	return create[Refund](ctx, c, key, path+"/refunds", params)
}
