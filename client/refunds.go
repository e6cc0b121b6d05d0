package client

import (
	"context"
	"net/url"
	"time"
)

// RefundParams are the parameters of a refund.
type RefundParams struct {
	Amount int64  `json:"amount"` // the API rejects 0, so that a forgotten amount refunds nothing
	Reason string `json:"reason,omitempty"`
}

// Refund is a refund as the API returns it.
type Refund struct {
	ID               string    `json:"id"`
	OrderID          string    `json:"order_id"`
	Amount           int64     `json:"amount"`
	Currency         string    `json:"currency"`
	Reason           Nullable  `json:"reason"`
	Status           string    `json:"status"`
	ProviderRefundID Nullable  `json:"provider_refund_id"`       // Stripe's id
	Source           string    `json:"source"`                   // api, or provider if it was made in Stripe's dashboard
	FailureReason    string    `json:"failure_reason,omitempty"` // set if it failed
	CreatedAt        time.Time `json:"created_at"`
}

// CreateRefund refunds an order once per key, see [Client.Do]. Each refund has its own key.
func (c *Client) CreateRefund(ctx context.Context, key Key, orderID string, params RefundParams, prefer ...Preference) (Refund, error) {
	return post[Refund](ctx, c, Request{Key: key, Path: refundsOf(orderID), Prefer: prefer}, params)
}

// RefundRemaining refunds what remains of an order, as CreateRefund does. reason may be empty.
func (c *Client) RefundRemaining(ctx context.Context, key Key, orderID, reason string, prefer ...Preference) (Refund, error) {
	params := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	return post[Refund](ctx, c, Request{Key: key, Path: refundsOf(orderID), Prefer: prefer}, params)
}

func refundsOf(orderID string) string { return "/v1/orders/" + url.PathEscape(orderID) + "/refunds" }

// GetRefund reads a refund. For unknown ids it returns a [*Problem].
func (c *Client) GetRefund(ctx context.Context, orderID, id string) (Refund, error) {
	return read[Refund](ctx, c, refundsOf(orderID)+"/"+url.PathEscape(id))
}

// RefundPage is a page of refunds, newest first.
type RefundPage struct {
	Data    []Refund `json:"data"`
	HasMore bool     `json:"has_more"`
}

// RefundFilter selects a page of an order's refunds. Its zero value is the first page.
type RefundFilter struct {
	Limit int    // of the page, at most 100; 0 means 20
	After string // the id of the last refund of the page before
}

// ListRefunds returns a page of an order's refunds, see [Client.ListOrders].
func (c *Client) ListRefunds(ctx context.Context, orderID string, filter RefundFilter) (RefundPage, error) {
	return read[RefundPage](ctx, c, refundsOf(orderID)+"?"+pageQuery(filter.Limit, filter.After).Encode())
}
