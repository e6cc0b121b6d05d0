package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Nullable is a string that JSON shows as null if it is empty.
type Nullable string

// MarshalJSON implements [json.Marshaler].
func (n Nullable) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}

// OrderParams are the parameters of an order. Amounts are in the currency's smallest unit.
type OrderParams struct {
	Email         string            `json:"email"`
	Currency      string            `json:"currency"`
	PaymentMethod string            `json:"payment_method"`
	Items         []Item            `json:"items"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	OffSession    bool              `json:"off_session,omitempty"` // the customer is not present

	// Reference is your own name for the purchase, such as the id of a basket. If an order with
	// another key has the same reference and has not failed, CreateOrder returns a [*Problem] of type
	// order-exists with the OrderID of that order.
	Reference string `json:"reference,omitempty"`
}

// Item is one line of an order.
type Item struct {
	SKU         string `json:"sku"`
	Description string `json:"description,omitempty"`
	Quantity    int64  `json:"quantity"`
	UnitAmount  int64  `json:"unit_amount"`
}

// Order is an order as the API returns it, and as a backend may pass it on: encoding/json writes the same
// members.
type Order struct {
	ID              string            `json:"id"`
	Status          string            `json:"status"`
	Amount          int64             `json:"amount"`
	AmountRefunded  int64             `json:"amount_refunded"`
	Currency        string            `json:"currency"`
	Email           Nullable          `json:"email"` // "" after an erasure
	Items           []Item            `json:"items"`
	PaymentIntentID Nullable          `json:"payment_intent_id"` // "" if there is none yet
	Metadata        map[string]string `json:"metadata"`
	CreatedAt       time.Time         `json:"created_at"`
	PaidAt          *time.Time        `json:"paid_at"` // nil before the payment
	Failure         *Failure          `json:"failure"` // nil unless Status is payment_failed
	Reference       Nullable          `json:"reference"`
	Disputes        []Dispute         `json:"disputes"` // AmountRefunded does not include them
}

// Dispute is a payment that the customer disputes at the bank.
type Dispute struct {
	ID       string `json:"id"`     // Stripe's id
	Status   string `json:"status"` // such as needs_response, won or lost
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Reason   string `json:"reason"` // such as fraudulent
}

// Failure is the reason why an order was not charged.
type Failure struct {
	Code        string   `json:"code"`
	DeclineCode Nullable `json:"decline_code"` // never for the customer
}

// CreateOrder creates and charges an order once per key, see [Client.Do].
func (c *Client) CreateOrder(ctx context.Context, key Key, params OrderParams, prefer ...Preference) (Order, error) {
	return post[Order](ctx, c, Request{Key: key, Path: "/v1/orders", Prefer: prefer}, params)
}

// CancelOrder ends an order before its payment, once per key, see [Client.Do]. The order that it
// returns was not charged and never will be. If the order is paid, it returns a [*Problem] of type
// order-not-cancelable. Until one of them arrives, the customer may still pay.
func (c *Client) CancelOrder(ctx context.Context, key Key, orderID string, prefer ...Preference) (Order, error) {
	r := Request{Key: key, Path: "/v1/orders/" + url.PathEscape(orderID) + "/cancel", Success: http.StatusOK, Prefer: prefer}
	return post[Order](ctx, c, r, struct{}{})
}

// GetOrder reads an order. For an unknown id it returns a [*Problem].
func (c *Client) GetOrder(ctx context.Context, id string) (Order, error) {
	return read[Order](ctx, c, "/v1/orders/"+url.PathEscape(id))
}

// OrderPage is a page of orders, newest first.
type OrderPage struct {
	Data    []Order `json:"data"`
	HasMore bool    `json:"has_more"`
}

// OrderFilter selects a page of orders. Its zero value is the first page of all orders.
type OrderFilter struct {
	Limit     int    // of the page, at most 100; 0 means 20
	After     string // the id of the last order of the page before
	Reference string // only orders with this reference
}

// ListOrders returns a page of orders. While HasMore is true, the id of its last order is the After of
// the next page.
func (c *Client) ListOrders(ctx context.Context, filter OrderFilter) (OrderPage, error) {
	query := pageQuery(filter.Limit, filter.After)
	if filter.Reference != "" {
		query.Set("reference", filter.Reference)
	}
	return read[OrderPage](ctx, c, "/v1/orders?"+query.Encode())
}

// pageQuery omits what is zero, because the API rejects empty parameters.
func pageQuery(limit int, after string) url.Values {
	query := url.Values{}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	if after != "" {
		query.Set("after", after)
	}
	return query
}
