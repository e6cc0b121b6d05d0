-- +goose Up
CREATE TABLE refunds (
    id                 uuid        NOT NULL,
    account_id         uuid        NOT NULL REFERENCES accounts (id),
    order_id           uuid        NOT NULL,
    idempotency_key_id uuid,
    idempotency_key    text        NOT NULL,
    amount             bigint      NOT NULL CHECK (amount > 0),
    currency           text        NOT NULL CHECK (currency ~ '^[a-z]{3}$'),
    reason             text        CHECK (reason IN ('duplicate', 'fraudulent', 'requested_by_customer')),
    status             text        NOT NULL
        CHECK (status IN ('pending', 'requires_action', 'succeeded', 'failed', 'canceled')),
    refund_id          text        UNIQUE CHECK (char_length(refund_id) BETWEEN 1 AND 255),
    failure_reason     text        CHECK (char_length(failure_reason) BETWEEN 1 AND 255),
    provider_failed_at timestamptz,
    created_at         timestamptz NOT NULL,
    PRIMARY KEY (account_id, id),
    -- Kept for good: a key never executes twice, even after its row was reaped (R17).
    CONSTRAINT refunds_key_once UNIQUE (account_id, idempotency_key),
    FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id),
    FOREIGN KEY (account_id, idempotency_key_id)
        REFERENCES idempotency_keys (account_id, id) ON DELETE SET NULL (idempotency_key_id),
    -- Before the provider has it a refund is pending; if the provider never has it, it is failed.
    CONSTRAINT status_has_refund CHECK (refund_id IS NOT NULL OR status IN ('pending', 'failed')),
    CONSTRAINT failure_has_status CHECK (failure_reason IS NULL OR status IN ('failed', 'canceled'))
);
COMMENT ON TABLE refunds IS 'Money that goes back to the card of an order. All but failed and canceled ones hold their amount: together at most the order''s.';
COMMENT ON COLUMN refunds.id IS 'UUIDv8 derived from account and key (R5).';
COMMENT ON COLUMN refunds.amount IS 'In the currency''s smallest unit. Decided once: what was left of the order, where the client named no amount (R4).';
COMMENT ON COLUMN refunds.refund_id IS 'The refund at the provider; NULL until it is known. Such a refund is not in orders.amount_refunded yet.';
COMMENT ON COLUMN refunds.failure_reason IS 'Why no money went back, in the provider''s words or ours.';
COMMENT ON COLUMN refunds.provider_failed_at IS 'When the provider last kept a 500 under our key: it repeats that for a day, and may still make the refund (R12).';

CREATE INDEX refunds_newest ON refunds (account_id, order_id, created_at DESC, id DESC);
-- Deleting a key looks for its refund (ON DELETE SET NULL).
CREATE INDEX refunds_idempotency_key_id ON refunds (account_id, idempotency_key_id);
-- The comparison with the provider goes through an account's refunds by time.
CREATE INDEX refunds_made ON refunds (account_id, created_at DESC, id DESC);

-- +goose Down
DROP TABLE refunds;
