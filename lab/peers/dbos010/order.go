package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/google/uuid"
)

const schema = `
CREATE TABLE IF NOT EXISTS orders (
    id                uuid        PRIMARY KEY, -- derived from the key
    idempotency_key   text        NOT NULL UNIQUE,
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

// Each write is one statement, which can be repeated, because a step runs at least once.
const (
	insertOrder = `
WITH o AS (
    INSERT INTO orders (id, idempotency_key, email, currency, amount, items, metadata, payment_method)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT DO NOTHING
    RETURNING id, amount
)
INSERT INTO audit_records (action, resource_id, data)
SELECT 'order.created', id, jsonb_build_object('amount', amount) FROM o`

	markPaid = `
WITH o AS (
    UPDATE orders SET status = 'paid', payment_intent_id = $2, paid_at = now()
     WHERE id = $1 AND status = 'pending'
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
     WHERE id = $1 AND status = 'pending'
    RETURNING id
)
INSERT INTO audit_records (action, resource_id, data)
SELECT 'order.payment_failed', id, '{}' FROM o`
)

// order is the input of a workflow.
type order struct {
	ID            uuid.UUID         `json:"id"`
	Key           string            `json:"key"`
	Hash          []byte            `json:"hash"` // of the request's body
	Email         string            `json:"email"`
	Currency      string            `json:"currency"`
	Amount        int64             `json:"amount"`
	Items         []item            `json:"items"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	PaymentMethod string            `json:"payment_method"`
}

type item struct {
	SKU         string `json:"sku"`
	Description string `json:"description,omitempty"`
	Quantity    int64  `json:"quantity"`
	UnitAmount  int64  `json:"unit_amount"`
}

// result is the output of a workflow. The rest of a response is in the request.
type result struct {
	Hash        []byte `json:"hash"` // of the first request
	IntentID    string `json:"intent_id"`
	FailureCode string `json:"failure_code,omitempty"`
}

const maxBody = 1 << 20

func parseOrder(w http.ResponseWriter, r *http.Request) (order, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return order{}, err
	}
	var o order
	if err := json.Unmarshal(body, &o); err != nil {
		return o, err
	}
	hash := sha256.Sum256(body)
	o.Key, o.Hash = r.Header.Get("Idempotency-Key"), hash[:]
	o.ID = uuid.NewSHA1(uuid.NameSpaceOID, []byte(o.Key))
	o.Amount = 0
	for _, i := range o.Items {
		o.Amount += i.Quantity * i.UnitAmount
	}
	if o.Key == "" || o.Amount <= 0 {
		return o, errors.New("a key and an amount are required")
	}
	return o, nil
}

func respond(w http.ResponseWriter, o order, r result) {
	if r.FailureCode != "" {
		problem(w, http.StatusPaymentRequired, r.FailureCode)
		return
	}
	writeJSON(w, http.StatusCreated, map[string]any{
		"id": o.ID, "status": "paid", "amount": o.Amount, "currency": o.Currency, "email": o.Email,
		"items": o.Items, "metadata": o.Metadata, "payment_intent_id": r.IntentID,
	})
}

func problem(w http.ResponseWriter, status int, detail string) {
	writeJSON(w, status, map[string]any{"status": status, "title": http.StatusText(status), "detail": detail})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
