package client

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"
)

// OrderParams are the parameters of an order. Amounts are in the currency's smallest
// unit.
type OrderParams struct {
	Email         string            `json:"email"`
	Currency      string            `json:"currency"`
	PaymentMethod string            `json:"payment_method"`
	Items         []Item            `json:"items"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	OffSession    bool              `json:"off_session,omitempty"` // the customer is not present
}

// Item is one line of an order.
type Item struct {
	SKU         string `json:"sku"`
	Description string `json:"description,omitempty"`
	Quantity    int64  `json:"quantity"`
	UnitAmount  int64  `json:"unit_amount"`
}

// Order is an order.
type Order struct {
	ID              string            `json:"id"`
	Status          string            `json:"status"`
	Amount          int64             `json:"amount"`
	AmountRefunded  int64             `json:"amount_refunded"`
	Currency        string            `json:"currency"`
	Email           string            `json:"email"`
	Items           []Item            `json:"items"`
	PaymentIntentID string            `json:"payment_intent_id"` // "" if there is none yet
	Metadata        map[string]string `json:"metadata"`
	CreatedAt       time.Time         `json:"created_at"`
	PaidAt          *time.Time        `json:"paid_at"` // nil if it is not paid
	Failure         *Failure          `json:"failure"` // nil unless Status is payment_failed
}

// Failure is the reason why an order was not charged.
type Failure struct {
	Code        string `json:"code"`
	DeclineCode string `json:"decline_code"` // "" if there is none
}

// CreateOrder creates and charges an order exactly once per key. A declined card is a
// [*Problem]. A payment that the customer must approve is an [*ActionRequiredError].
// See [Client.Do].
func (c *Client) CreateOrder(ctx context.Context, key Key, params OrderParams) (Order, error) {
	return create[Order](ctx, c, key, "/v1/orders", params)
}

// GetOrder reads an order. An unknown id is a [*Problem].
func (c *Client) GetOrder(ctx context.Context, id string) (Order, error) {
	path, err := orderPath(id)
	if err != nil {
		return Order{}, err
	}
	return read[Order](ctx, c, path)
}

// OrderPage is a page of the list of orders, newest first.
type OrderPage struct {
	Data    []Order `json:"data"`
	HasMore bool    `json:"has_more"`
}

// ListOrders returns up to limit (at most 100) orders older than the order with the id
// after; "" starts with the newest.
func (c *Client) ListOrders(ctx context.Context, limit int, after string) (OrderPage, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if after != "" {
		query.Set("after", after)
	}
	return read[OrderPage](ctx, c, "/v1/orders?"+query.Encode())
}

// orderPath rejects an empty id, which would select the list.
func orderPath(id string) (string, error) {
	if id == "" {
		return "", errors.New("client: no order id")
	}
	return "/v1/orders/" + url.PathEscape(id), nil
}
