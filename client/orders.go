package client

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"
)

// OrderParams are what an order is made of. Amounts are in the currency's
// smallest unit.
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

// Order is an order as the API tells it.
type Order struct {
	ID              string            `json:"id"`
	Status          string            `json:"status"`
	Amount          int64             `json:"amount"`
	AmountRefunded  int64             `json:"amount_refunded"`
	Currency        string            `json:"currency"`
	Email           string            `json:"email"`
	Items           []Item            `json:"items"`
	PaymentIntentID string            `json:"payment_intent_id"` // "" before there is one
	Metadata        map[string]string `json:"metadata"`
	CreatedAt       time.Time         `json:"created_at"`
	PaidAt          *time.Time        `json:"paid_at"` // nil when it is not paid
	Failure         *Failure          `json:"failure"` // nil unless Status is payment_failed
}

// Failure is the reason why an order was not charged.
type Failure struct {
	Code        string `json:"code"`
	DeclineCode string `json:"decline_code"` // "" if there is none
}

// CreateOrder makes an order and charges it, once, however often it takes and
// however often it is called with this key. A card that is declined is a
// [*Problem], and a payment that the customer must approve is an
// [*ActionRequiredError]; see [Client.Do] for the errors.
func (c *Client) CreateOrder(ctx context.Context, key Key, params OrderParams) (Order, error) {
	return create[Order](ctx, c, key, "/v1/orders", params)
}

// GetOrder reads an order. One that is not there, or another account's, is a
// [*Problem].
func (c *Client) GetOrder(ctx context.Context, id string) (Order, error) {
	path, err := orderPath(id)
	if err != nil {
		return Order{}, err
	}
	return read[Order](ctx, c, get(path))
}

// OrderPage is a part of the list of orders, newest first.
type OrderPage struct {
	Data    []Order `json:"data"`
	HasMore bool    `json:"has_more"`
}

// ListOrders returns up to limit orders, at most 100, that are older than the
// one with the id after; "" begins with the newest.
func (c *Client) ListOrders(ctx context.Context, limit int, after string) (OrderPage, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if after != "" {
		query.Set("after", after)
	}
	return read[OrderPage](ctx, c, get("/v1/orders?"+query.Encode()))
}

// orderPath refuses an empty id, which would be the address of the list.
func orderPath(id string) (string, error) {
	if id == "" {
		return "", errors.New("client: no order id")
	}
	return "/v1/orders/" + url.PathEscape(id), nil
}
