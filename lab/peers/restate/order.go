package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const schema = `
CREATE TABLE IF NOT EXISTS orders (
    id                uuid        PRIMARY KEY, -- derived from the key
    idempotency_key   text        NOT NULL UNIQUE,
    params_hash       bytea       NOT NULL,
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

const (
	statusPending = "pending"
	statusPaid    = "paid"
	statusFailed  = "payment_failed"
)

// order is what the client requests.
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

// result is what became of the order.
type result struct {
	Hash        []byte `json:"hash"` // of the first request with the key
	Status      string `json:"status"`
	IntentID    string `json:"intent_id,omitempty"`
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

// respond writes the final response, which is always the same for an order.
func respond(w http.ResponseWriter, o order, r result) {
	if r.Status == statusFailed {
		problem(w, http.StatusPaymentRequired, r.FailureCode)
		return
	}
	writeJSON(w, http.StatusCreated, map[string]any{
		"id": o.ID, "status": r.Status, "amount": o.Amount, "currency": o.Currency, "email": o.Email,
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

// database is a pool or a transaction.
type database interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// insertOrder stores a pending order, or returns what became of an earlier one with the key.
func insertOrder(ctx context.Context, db database, o order) (result, error) {
	tag, err := db.Exec(ctx, `
		WITH o AS (
		    INSERT INTO orders (id, idempotency_key, params_hash, email, currency, amount, items, metadata, payment_method)
		    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		    ON CONFLICT DO NOTHING
		    RETURNING id, amount
		)
		INSERT INTO audit_records (action, resource_id, data)
		SELECT 'order.created', id, jsonb_build_object('amount', amount) FROM o`,
		o.ID, o.Key, o.Hash, o.Email, o.Currency, o.Amount, o.Items, o.Metadata, o.PaymentMethod)
	if err != nil || tag.RowsAffected() == 1 {
		return result{Hash: o.Hash, Status: statusPending}, err
	}
	return readResult(ctx, db, o.ID)
}

func readResult(ctx context.Context, db database, id uuid.UUID) (result, error) {
	var r result
	err := db.QueryRow(ctx, `
		SELECT params_hash, status, coalesce(payment_intent_id, ''), coalesce(failure_code, '')
		  FROM orders
		 WHERE id = $1`, id).Scan(&r.Hash, &r.Status, &r.IntentID, &r.FailureCode)
	return r, err
}

// finish stores the final state. A paid order also gets a job for its receipt.
func finish(ctx context.Context, db database, id uuid.UUID, r result) error {
	if r.Status == statusFailed {
		_, err := db.Exec(ctx, `
			WITH o AS (
			    UPDATE orders SET status = 'payment_failed', payment_intent_id = $2, failure_code = $3
			     WHERE id = $1 AND status = 'pending'
			    RETURNING id
			)
			INSERT INTO audit_records (action, resource_id, data)
			SELECT 'order.payment_failed', id, '{}' FROM o`, id, r.IntentID, r.FailureCode)
		return err
	}
	_, err := db.Exec(ctx, `
		WITH o AS (
		    UPDATE orders SET status = 'paid', payment_intent_id = $2, paid_at = now()
		     WHERE id = $1 AND status = 'pending'
		    RETURNING id, amount
		), job AS (
		    INSERT INTO staged_jobs (kind, args)
		    SELECT 'send_receipt', jsonb_build_object('order_id', id) FROM o
		)
		INSERT INTO audit_records (action, resource_id, data)
		SELECT 'order.paid', id, jsonb_build_object('amount', amount) FROM o`, id, r.IntentID)
	return err
}
