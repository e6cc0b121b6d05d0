-- +goose Up
-- Fourteen files of an unreleased version made the same schema. This one has the last of their
-- numbers, so that a database with all of them needs nothing, and one with fewer is rejected.
CREATE DOMAIN refund_status AS text
    CHECK (VALUE IN ('pending', 'requires_action', 'succeeded', 'failed', 'canceled'));
CREATE DOMAIN refund_reason AS text
    CHECK (VALUE IN ('duplicate', 'fraudulent', 'requested_by_customer'));

-- A refund reserves its amount unless it failed or was canceled.
CREATE TABLE refunds (
    account_id         uuid          NOT NULL REFERENCES accounts (id),
    id                 uuid          NOT NULL, -- derived from account and key (R5, derived ids)
    order_id           uuid          NOT NULL,
    idempotency_key    text          NOT NULL,
    amount             amount        NOT NULL,
    currency           currency      NOT NULL,
    reason             refund_reason,
    status             refund_status NOT NULL,
    provider_refund_id external_id   COLLATE "C", -- without it, the refund is not in orders.amount_refunded
    failure_reason     external_id,
    -- Stripe replays a refusal under its key, so a refused refund is sent again under the next one.
    provider_attempt   integer       NOT NULL DEFAULT 1,
    -- When the last call that may have been executed was sent, and NULL if there is none. An INSERT
    -- that does not set it counts as sent.
    provider_sent_at   timestamptz   DEFAULT now(),
    provider_failed_at timestamptz,  -- a 500 that the provider replays for a day
    created_at         timestamptz   NOT NULL,

    FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id),

    CONSTRAINT status_requires_provider_refund_id CHECK (provider_refund_id IS NOT NULL OR status IN ('pending', 'failed')),

    CONSTRAINT failure_reason_requires_failure CHECK (failure_reason IS NULL OR status IN ('failed', 'canceled'))
);

CREATE INDEX refunds_account_id_order_id_created_at_idx ON refunds (account_id, order_id, created_at, id);

CREATE INDEX refunds_account_id_created_at_idx ON refunds (account_id, created_at, id);

CREATE UNIQUE INDEX refunds_provider_refund_id_unique ON refunds (account_id, provider_refund_id)
    WHERE provider_refund_id IS NOT NULL;

ALTER TABLE refunds ADD PRIMARY KEY (account_id, id);

-- +goose Down
DROP TABLE refunds;
DROP DOMAIN refund_status, refund_reason;
