package main

import (
	"encoding/json"
	"errors"

	"github.com/google/uuid"
)

const schema = `
CREATE TABLE IF NOT EXISTS orders (
    id                uuid        PRIMARY KEY,
    email             text        NOT NULL,
    currency          text        NOT NULL,
    amount            bigint      NOT NULL CHECK (amount > 0),
    items             jsonb       NOT NULL,
    metadata          jsonb,
    payment_method    text        NOT NULL,
    status            text        NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'paid', 'payment_failed')),
    payment_intent_id text,
    failure_code      text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    paid_at           timestamptz
);
CREATE TABLE IF NOT EXISTS responses (
    key        text        PRIMARY KEY,
    value      bytea       NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS audit_records (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action      text        NOT NULL,
    resource_id uuid        NOT NULL,
    data        jsonb       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS staged_jobs (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind       text        NOT NULL,
    args       jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);`

// Each write is one statement, so it is one round trip and one transaction.
const (
	insertOrder = `
WITH o AS (
    INSERT INTO orders (id, email, currency, amount, items, metadata, payment_method)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    RETURNING id, amount
)
INSERT INTO audit_records (action, resource_id, data)
SELECT 'order.created', id, jsonb_build_object('amount', amount) FROM o`

	markPaid = `
WITH o AS (
    UPDATE orders SET status = 'paid', payment_intent_id = $2, paid_at = now()
     WHERE id = $1
    RETURNING id, amount
), job AS (
    INSERT INTO staged_jobs (kind, args)
    SELECT 'send_receipt', jsonb_build_object('order_id', id) FROM o
)
INSERT INTO audit_records (action, resource_id, data)
SELECT 'order.paid', id, jsonb_build_object('amount', amount) FROM o`

	markFailed = `
WITH o AS (
    UPDATE orders SET status = 'payment_failed', payment_intent_id = $2, failure_code = $3
     WHERE id = $1
    RETURNING id
)
INSERT INTO audit_records (action, resource_id, data)
SELECT 'order.payment_failed', id, '{}' FROM o`
)

type order struct {
	ID            uuid.UUID         `json:"id"`
	Status        string            `json:"status"`
	Email         string            `json:"email"`
	Currency      string            `json:"currency"`
	Amount        int64             `json:"amount"`
	Items         []item            `json:"items"`
	Metadata      map[string]string `json:"metadata"`
	PaymentMethod string            `json:"payment_method"`
	IntentID      string            `json:"payment_intent_id"`
}

type item struct {
	SKU         string `json:"sku"`
	Description string `json:"description,omitempty"`
	Quantity    int64  `json:"quantity"`
	UnitAmount  int64  `json:"unit_amount"`
}

func parseOrder(body []byte) (order, error) {
	var o order
	if err := json.Unmarshal(body, &o); err != nil {
		return o, err
	}
	o.ID, o.Status, o.Amount = uuid.New(), "pending", 0
	for _, i := range o.Items {
		o.Amount += i.Quantity * i.UnitAmount
	}
	if o.Amount <= 0 {
		return o, errors.New("an amount is required")
	}
	return o, nil
}
