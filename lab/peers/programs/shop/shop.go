// Package shop has what all peers share: the order and its tables, the calls to Stripe, and the
// HTTP server.
package shop

import (
	"context"

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

// States of an order.
const (
	StatusPending = "pending"
	StatusPaid    = "paid"
	StatusFailed  = "payment_failed"
)

// Order is what the client requests.
type Order struct {
	ID            uuid.UUID         `json:"id"`
	Key           string            `json:"key"`
	Hash          []byte            `json:"hash"` // of the request's body
	Email         string            `json:"email"`
	Currency      string            `json:"currency"`
	Amount        int64             `json:"amount"`
	Items         []Item            `json:"items"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	PaymentMethod string            `json:"payment_method"`
}

// Item is a line of an order.
type Item struct {
	SKU         string `json:"sku"`
	Description string `json:"description,omitempty"`
	Quantity    int64  `json:"quantity"`
	UnitAmount  int64  `json:"unit_amount"`
}

// Result is what became of the order.
type Result struct {
	Hash        []byte `json:"hash"` // of the first request with the key
	Status      string `json:"status"`
	IntentID    string `json:"intent_id,omitempty"`
	FailureCode string `json:"failure_code,omitempty"`
}

// Database is a pool or a transaction.
type Database interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Insert stores a pending order, or returns what became of an earlier one with the key.
func Insert(ctx context.Context, db Database, o Order) (Result, error) {
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
		return Result{Hash: o.Hash, Status: StatusPending}, err
	}
	return Read(ctx, db, o.ID)
}

func Read(ctx context.Context, db Database, id uuid.UUID) (Result, error) {
	var r Result
	err := db.QueryRow(ctx, `
		SELECT params_hash, status, coalesce(payment_intent_id, ''), coalesce(failure_code, '')
		  FROM orders
		 WHERE id = $1`, id).Scan(&r.Hash, &r.Status, &r.IntentID, &r.FailureCode)
	return r, err
}

// Finish stores the final state. A paid order also gets a job for its receipt.
func Finish(ctx context.Context, db Database, id uuid.UUID, r Result) error {
	if r.Status == StatusFailed {
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
