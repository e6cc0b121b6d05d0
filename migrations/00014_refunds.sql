-- +goose Up
-- Before the first release, fourteen migrations made the schema that these four make. This one keeps the
-- last number, so a database that has all fourteen is up to date. On one that has fewer, this migration
-- fails.
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
    provider_refund_id external_id   COLLATE "C", -- until it is set, orders.amount_refunded does not include the refund
    failure_reason     external_id,
    -- Part of the provider's key. Stripe replays a refusal under the same key, so a refused refund is
    -- sent again under the next one.
    provider_attempt   integer       NOT NULL DEFAULT 1,
    -- The time of the last call that Stripe may have executed; NULL if there is none. The default counts
    -- a row as sent unless its INSERT says otherwise, because that is the safe assumption.
    provider_sent_at   timestamptz   DEFAULT now(),
    provider_failed_at timestamptz,  -- the time of a 500, which the provider replays for a day
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
