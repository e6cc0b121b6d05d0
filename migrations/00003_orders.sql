-- +goose Up
CREATE TABLE orders (
    id                 uuid        NOT NULL,
    account_id         uuid        NOT NULL REFERENCES accounts (id),
    idempotency_key_id uuid,
    idempotency_key    text        NOT NULL,
    email              text        NOT NULL CHECK (char_length(email) BETWEEN 3 AND 254),
    currency           text        NOT NULL CHECK (currency ~ '^[a-z]{3}$'),
    amount             bigint      NOT NULL CHECK (amount > 0),
    amount_refunded    bigint      NOT NULL DEFAULT 0 CHECK (amount_refunded BETWEEN 0 AND amount),
    items              jsonb       NOT NULL CHECK (jsonb_typeof(items) = 'array'),
    metadata           json        NOT NULL,
    payment_method     text        NOT NULL CHECK (char_length(payment_method) BETWEEN 1 AND 255),
    status             text        NOT NULL
        CHECK (status IN ('pending', 'paid', 'payment_failed', 'partially_refunded', 'refunded')),
    payment_intent_id  text        UNIQUE CHECK (char_length(payment_intent_id) BETWEEN 1 AND 255),
    create_attempt     smallint    NOT NULL DEFAULT 1 CHECK (create_attempt >= 1),
    confirm_attempt    smallint    NOT NULL DEFAULT 1 CHECK (confirm_attempt >= 1),
    created_at         timestamptz NOT NULL,
    paid_at            timestamptz,
    PRIMARY KEY (account_id, id),
    -- Kept for good: a key never executes twice, even after its row was reaped (R17).
    CONSTRAINT orders_key_once UNIQUE (account_id, idempotency_key),
    FOREIGN KEY (account_id, idempotency_key_id)
        REFERENCES idempotency_keys (account_id, id) ON DELETE SET NULL (idempotency_key_id),
    CONSTRAINT paid_has_intent CHECK (
        (status IN ('paid', 'partially_refunded', 'refunded')) = (paid_at IS NOT NULL)
        AND (paid_at IS NULL OR payment_intent_id IS NOT NULL)
    )
);
COMMENT ON COLUMN orders.id IS 'UUIDv8 derived from account and key (R5).';
COMMENT ON COLUMN orders.amount IS 'In the currency''s smallest unit (cents, yen).';
COMMENT ON COLUMN orders.metadata IS 'json, not jsonb: jsonb refuses \u0000, which a client may send.';
COMMENT ON COLUMN orders.create_attempt IS 'Number of the provider key for creating the PaymentIntent; raised when the provider saved a 500 under the last one (R12).';
COMMENT ON COLUMN orders.confirm_attempt IS 'The same for confirming it.';

CREATE INDEX orders_newest ON orders (account_id, created_at DESC, id DESC);
-- Deleting a key looks for its order (ON DELETE SET NULL).
CREATE INDEX orders_idempotency_key_id ON orders (account_id, idempotency_key_id);

-- +goose Down
DROP TABLE orders;
