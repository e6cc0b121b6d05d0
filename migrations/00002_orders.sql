-- +goose Up
CREATE DOMAIN email_address AS text CHECK (char_length(VALUE) BETWEEN 3 AND 254);
CREATE DOMAIN currency AS text CHECK (VALUE ~ '^[a-z]{3}$');
CREATE DOMAIN amount AS bigint CHECK (VALUE > 0); -- in the currency's smallest unit
CREATE DOMAIN external_id AS text CHECK (char_length(VALUE) BETWEEN 1 AND 255);
CREATE DOMAIN order_status AS text
    CHECK (VALUE IN ('pending', 'requires_action', 'paid', 'payment_failed', 'partially_refunded', 'refunded'));
CREATE DOMAIN refund_status AS text
    CHECK (VALUE IN ('pending', 'requires_action', 'succeeded', 'failed', 'canceled'));
CREATE DOMAIN refund_reason AS text
    CHECK (VALUE IN ('duplicate', 'fraudulent', 'requested_by_customer'));

CREATE TABLE orders (
    account_id        uuid           NOT NULL REFERENCES accounts (id),
    id                uuid           NOT NULL, -- derived from account and key (R5)
    idempotency_key   text           NOT NULL,
    email             email_address  NOT NULL,
    currency          currency       NOT NULL,
    amount            amount         NOT NULL,
    amount_refunded   bigint         NOT NULL DEFAULT 0,
    items             jsonb          NOT NULL CHECK (jsonb_typeof(items) = 'array'), -- pgx cannot encode JSON for a domain
    metadata          json           NOT NULL, -- jsonb rejects \u0000
    payment_method    external_id    NOT NULL,
    off_session       boolean        NOT NULL DEFAULT false, -- the customer cannot approve the payment
    status            order_status   NOT NULL,
    payment_intent_id external_id,             -- committed before the confirm
    create_attempt    attempt_number NOT NULL DEFAULT 1, -- part of the provider key (R12)
    confirm_attempt   attempt_number NOT NULL DEFAULT 1,
    created_at        timestamptz    NOT NULL,
    paid_at           timestamptz,
    failure_code      text,
    decline_code      text,

    -- Also after the key was reaped (R17).
    CONSTRAINT orders_idempotency_key_unique UNIQUE (account_id, idempotency_key),

    CONSTRAINT refunded_at_most_amount CHECK (amount_refunded BETWEEN 0 AND amount),

    CONSTRAINT paid_has_intent CHECK (
        (status IN ('paid', 'partially_refunded', 'refunded')) = (paid_at IS NOT NULL)
        AND (paid_at IS NULL OR payment_intent_id IS NOT NULL)
    ),

    CONSTRAINT failed_has_reason CHECK (
        (status = 'payment_failed') = (failure_code IS NOT NULL)
        AND (decline_code IS NULL OR failure_code IS NOT NULL)
    )
) WITH (
    fillfactor = 90, -- for HOT updates
    autovacuum_vacuum_scale_factor = 0.01, -- the default is 20 %
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);

CREATE INDEX orders_account_id_created_at_idx ON orders (account_id, created_at, id);

-- An intent pays for one order.
CREATE UNIQUE INDEX orders_payment_intent_id_unique ON orders (account_id, payment_intent_id)
    WHERE payment_intent_id IS NOT NULL;

ALTER TABLE orders ADD PRIMARY KEY (account_id, id);

-- A refund reserves its amount unless it failed or was canceled.
CREATE TABLE refunds (
    account_id         uuid          NOT NULL REFERENCES accounts (id),
    id                 uuid          NOT NULL, -- derived from account and key (R5)
    order_id           uuid          NOT NULL,
    idempotency_key    text          NOT NULL,
    amount             amount        NOT NULL,
    currency           currency      NOT NULL,
    reason             refund_reason,
    status             refund_status NOT NULL,
    provider_refund_id external_id,  -- without it, the refund is not in orders.amount_refunded
    failure_reason     external_id,
    provider_failed_at timestamptz,  -- a 500 that the provider replays for a day (R12)
    created_at         timestamptz   NOT NULL,

    FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id),

    -- Also after the key was reaped (R17).
    CONSTRAINT refunds_idempotency_key_unique UNIQUE (account_id, idempotency_key),

    CONSTRAINT status_requires_provider_refund_id CHECK (provider_refund_id IS NOT NULL OR status IN ('pending', 'failed')),

    CONSTRAINT failure_reason_requires_failure CHECK (failure_reason IS NULL OR status IN ('failed', 'canceled'))
);

CREATE INDEX refunds_account_id_order_id_created_at_idx ON refunds (account_id, order_id, created_at, id);

CREATE INDEX refunds_account_id_created_at_idx ON refunds (account_id, created_at, id);

CREATE UNIQUE INDEX refunds_provider_refund_id_unique ON refunds (account_id, provider_refund_id)
    WHERE provider_refund_id IS NOT NULL;

ALTER TABLE refunds ADD PRIMARY KEY (account_id, id);

-- No foreign key to accounts, which would lock the account's row again.
CREATE TABLE audit_records (
    account_id    uuid        NOT NULL,
    id            uuid        NOT NULL,
    action        name64      NOT NULL,
    resource_type name64      NOT NULL,
    resource_id   external_id NOT NULL,
    data          jsonb       NOT NULL DEFAULT '{}',
    request_ip    inet,       -- NULL without a client
    created_at    timestamptz NOT NULL DEFAULT now(),

    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.05, -- the table only grows
    autovacuum_freeze_min_age = 0 -- later vacuums write nothing
);

-- Without created_at the entries of a resource are equal, and deduplicated.
CREATE INDEX audit_records_account_id_resource_id_idx ON audit_records (account_id, resource_id);

-- Work of the transaction that requires it (R15).
CREATE TABLE staged_jobs (
    account_id uuid          NOT NULL,
    id         uuid          NOT NULL,
    kind       name64        NOT NULL,
    args       jsonb         NOT NULL,
    run_at     timestamptz   NOT NULL DEFAULT now(), -- also the lease: a worker moves it forward
    attempt    attempt_count NOT NULL DEFAULT 0, -- fence of the worker
    last_error error_message,
    failed_at  timestamptz,
    created_at timestamptz   NOT NULL DEFAULT now(),

    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0, -- dead rows of a queue do not depend on its size
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX staged_jobs_pending_idx ON staged_jobs (kind, run_at) WHERE failed_at IS NULL;
CREATE INDEX staged_jobs_failed_idx ON staged_jobs (kind, failed_at) WHERE failed_at IS NOT NULL;

-- +goose Down
DROP TABLE staged_jobs, audit_records, refunds, orders;
DROP DOMAIN email_address, currency, amount, external_id, order_status, refund_status, refund_reason;
