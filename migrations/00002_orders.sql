-- +goose Up
-- What requests create: orders, refunds, audit records and staged jobs.

CREATE DOMAIN email_address AS text CHECK (char_length(VALUE) BETWEEN 3 AND 254);
CREATE DOMAIN currency AS text CHECK (VALUE ~ '^[a-z]{3}$');
CREATE DOMAIN amount AS bigint CHECK (VALUE > 0); -- in the currency's smallest unit
CREATE DOMAIN external_id AS text CHECK (char_length(VALUE) BETWEEN 1 AND 255); -- an id or a code as text, mostly the provider's
CREATE DOMAIN order_status AS text
    CHECK (VALUE IN ('pending', 'requires_action', 'paid', 'payment_failed', 'partially_refunded', 'refunded'));
CREATE DOMAIN refund_status AS text
    CHECK (VALUE IN ('pending', 'requires_action', 'succeeded', 'failed', 'canceled'));
CREATE DOMAIN refund_reason AS text
    CHECK (VALUE IN ('duplicate', 'fraudulent', 'requested_by_customer'));

-- One row per order. It stays when the row of its key is deleted.
CREATE TABLE orders (
    account_id        uuid           NOT NULL REFERENCES accounts (id),
    id                uuid           NOT NULL, -- UUIDv8 derived from account and key (R5)
    idempotency_key   text           NOT NULL, -- its format is checked where it is claimed
    email             email_address  NOT NULL,
    currency          currency       NOT NULL,
    amount            amount         NOT NULL,
    amount_refunded   bigint         NOT NULL DEFAULT 0,
    items             jsonb          NOT NULL CHECK (jsonb_typeof(items) = 'array'), -- no domain: pgx cannot encode JSON for it
    metadata          json           NOT NULL, -- jsonb rejects \u0000, which a client may send
    payment_method    external_id    NOT NULL,
    off_session       boolean        NOT NULL DEFAULT false, -- the customer is not present and cannot approve the payment
    status            order_status   NOT NULL,
    payment_intent_id external_id,             -- committed before the intent is confirmed
    create_attempt    attempt_number NOT NULL DEFAULT 1, -- raised when the provider replays a 500; part of its key (R12)
    confirm_attempt   attempt_number NOT NULL DEFAULT 1, -- the same for the confirm
    created_at        timestamptz    NOT NULL,
    paid_at           timestamptz,
    failure_code      text,                    -- why the order failed, as in the stored response, which has no limit either
    decline_code      text,                    -- the same, NULL if there is none

    -- A key creates one order, also after its row was reaped (R17).
    CONSTRAINT orders_idempotency_key_unique UNIQUE (account_id, idempotency_key),

    -- No more money goes back than was charged.
    CONSTRAINT refunded_at_most_amount CHECK (amount_refunded BETWEEN 0 AND amount),

    -- An order counts as paid only with the id of the intent that was charged.
    CONSTRAINT paid_has_intent CHECK (
        (status IN ('paid', 'partially_refunded', 'refunded')) = (paid_at IS NOT NULL)
        AND (paid_at IS NULL OR payment_intent_id IS NOT NULL)
    ),

    -- A failed order has a reason, and no other order has one.
    CONSTRAINT failed_has_reason CHECK (
        (status = 'payment_failed') = (failure_code IS NOT NULL)
        AND (decline_code IS NULL OR failure_code IS NOT NULL)
    )
) WITH (
    fillfactor = 90, -- free space on each page, for HOT updates
    autovacuum_vacuum_scale_factor = 0.01, -- the table only grows, so the default of 20 % comes ever less often
    autovacuum_vacuum_threshold = 1000, -- not for a few rows of a small table
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);

-- Lists, newest first, read it backwards. Entries inserted in ascending order fill the pages.
CREATE INDEX orders_account_id_created_at_idx ON orders (account_id, created_at, id);

-- An intent pays for one order. Partial: an order begins without an intent, and without an entry.
CREATE UNIQUE INDEX orders_payment_intent_id_unique ON orders (account_id, payment_intent_id)
    WHERE payment_intent_id IS NOT NULL;

ALTER TABLE orders ADD PRIMARY KEY (account_id, id);

-- One row per refund of an order. Refunds reserve their amount unless they failed or
-- were canceled. All reserved amounts together are at most the order's.
CREATE TABLE refunds (
    account_id         uuid          NOT NULL REFERENCES accounts (id),
    id                 uuid          NOT NULL, -- UUIDv8 derived from account and key (R5)
    order_id           uuid          NOT NULL,
    idempotency_key    text          NOT NULL,
    amount             amount        NOT NULL, -- what was left of the order, if the request named no amount (R4)
    currency           currency      NOT NULL,
    reason             refund_reason,
    status             refund_status NOT NULL,
    provider_refund_id external_id,  -- until it is known, the refund is not in orders.amount_refunded
    failure_reason     external_id,  -- the provider's word or ours
    provider_failed_at timestamptz,  -- last 500 that the provider replays for a day; the refund may still be made (R12)
    created_at         timestamptz   NOT NULL,

    -- A refund belongs to an order of its account.
    FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id),

    -- A key creates one refund, also after its row was reaped (R17).
    CONSTRAINT refunds_idempotency_key_unique UNIQUE (account_id, idempotency_key),

    -- All other states are the provider's, and come with its id.
    CONSTRAINT status_requires_provider_refund_id CHECK (provider_refund_id IS NOT NULL OR status IN ('pending', 'failed')),

    -- A refund that did not fail has no reason for a failure.
    CONSTRAINT failure_reason_requires_failure CHECK (failure_reason IS NULL OR status IN ('failed', 'canceled'))
);

-- The refunds of an order, newest first.
CREATE INDEX refunds_account_id_order_id_created_at_idx ON refunds (account_id, order_id, created_at, id);

-- The refunds of an account by time, for reconciliation.
CREATE INDEX refunds_account_id_created_at_idx ON refunds (account_id, created_at, id);

-- A refund at the provider is one refund here. Partial: a refund begins without the id.
CREATE UNIQUE INDEX refunds_provider_refund_id_unique ON refunds (account_id, provider_refund_id)
    WHERE provider_refund_id IS NOT NULL;

ALTER TABLE refunds ADD PRIMARY KEY (account_id, id);

-- What happened to a resource, written in the transaction that made it happen. Never
-- updated. No foreign key to accounts: it would lock the account's row again, which
-- the key, order or refund of the same transaction references already.
CREATE TABLE audit_records (
    account_id    uuid        NOT NULL,
    id            uuid        NOT NULL,
    action        name64      NOT NULL,
    resource_type name64      NOT NULL,
    resource_id   external_id NOT NULL,
    data          jsonb       NOT NULL DEFAULT '{}',
    request_ip    inet,       -- NULL without a client: completer, operator
    created_at    timestamptz NOT NULL DEFAULT now(),

    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.05, -- the table only grows
    autovacuum_freeze_min_age = 0 -- the first vacuum freezes a page, and no later one writes it again
);

-- The records of a resource. Without created_at their entries are equal, and deduplicated.
CREATE INDEX audit_records_account_id_resource_id_idx ON audit_records (account_id, resource_id);

-- Work staged in the transaction that requires it (R15). A finished job is deleted. No
-- foreign key to accounts, as in audit_records.
CREATE TABLE staged_jobs (
    account_id uuid          NOT NULL,
    id         uuid          NOT NULL,
    kind       name64        NOT NULL,
    args       jsonb         NOT NULL,
    run_at     timestamptz   NOT NULL DEFAULT now(), -- a worker that takes the job moves this forward, as a lease
    attempt    attempt_count NOT NULL DEFAULT 0, -- fence: a worker finishes the attempt that it took
    last_error error_message,
    failed_at  timestamptz,  -- after the last attempt; an operator has to act
    created_at timestamptz   NOT NULL DEFAULT now(),

    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0, -- a queue: the number of dead rows does not depend on its size
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0 -- it is small, so vacuum it at full speed
);

-- Jobs that are due, for the worker. Failed jobs, for metrics.
CREATE INDEX staged_jobs_pending_idx ON staged_jobs (kind, run_at) WHERE failed_at IS NULL;
CREATE INDEX staged_jobs_failed_idx ON staged_jobs (kind, failed_at) WHERE failed_at IS NOT NULL;

-- +goose Down
DROP TABLE staged_jobs, audit_records, refunds, orders;
DROP DOMAIN email_address, currency, amount, external_id, order_status, refund_status, refund_reason;
