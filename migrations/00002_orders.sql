-- +goose Up
-- What the keys create: orders, refunds, their audit records, and staged jobs.

CREATE DOMAIN reference AS text CHECK (char_length(VALUE) BETWEEN 1 AND 255);
CREATE DOMAIN email_address AS text CHECK (char_length(VALUE) BETWEEN 3 AND 254);
CREATE DOMAIN currency AS text CHECK (VALUE ~ '^[a-z]{3}$');
CREATE DOMAIN price AS bigint CHECK (VALUE > 0);
CREATE DOMAIN order_status AS text
    CHECK (VALUE IN ('pending', 'paid', 'payment_failed', 'partially_refunded', 'refunded'));

-- One order per key. It outlives the row of its key.
CREATE TABLE orders (
    account_id         uuid           NOT NULL REFERENCES accounts (id),
    id                 uuid           NOT NULL, -- UUIDv8 derived from account and key (R5)
    idempotency_key    text           NOT NULL,
    email              email_address  NOT NULL,
    currency           currency       NOT NULL,
    amount             price          NOT NULL, -- in the currency's smallest unit
    amount_refunded    bigint         NOT NULL DEFAULT 0 CHECK (amount_refunded BETWEEN 0 AND amount),
    items              jsonb          NOT NULL CHECK (jsonb_typeof(items) = 'array'), -- no domain: pgx encodes JSON by the column's type
    metadata           json           NOT NULL, -- not jsonb, which rejects the \u0000 that a client may send
    payment_method     reference      NOT NULL,
    status             order_status   NOT NULL,
    payment_intent_id  reference,               -- NULL until the provider's id is committed
    create_attempt     attempt_number NOT NULL DEFAULT 1, -- in the provider key of the create; raised after a 500 that the provider replays (R12)
    confirm_attempt    attempt_number NOT NULL DEFAULT 1, -- the same for the confirm
    created_at         timestamptz    NOT NULL,
    paid_at            timestamptz,

    -- Permanent: a key never executes twice, even after its row was reaped (R17).
    CONSTRAINT orders_key_once UNIQUE (account_id, idempotency_key),

    -- Paid means: at a time, with an intent whose id is stored. A refund does not undo it.
    CONSTRAINT paid_has_intent CHECK (
        (status IN ('paid', 'partially_refunded', 'refunded')) = (paid_at IS NOT NULL)
        AND (paid_at IS NULL OR payment_intent_id IS NOT NULL)
    )
) WITH (
    fillfactor = 90, -- as idempotency_keys
    autovacuum_vacuum_scale_factor = 0.01, -- the table only grows, so a fraction of it comes ever less often
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);

-- For lists, newest first: read backwards. Entries in ascending order fill its pages.
CREATE INDEX orders_newest ON orders (account_id, created_at, id);

-- One order per payment. Partial, so that an order without an intent has no entry.
CREATE UNIQUE INDEX orders_payment_intent_id_unique ON orders (account_id, payment_intent_id)
    WHERE payment_intent_id IS NOT NULL;

ALTER TABLE orders ADD PRIMARY KEY (account_id, id);

-- Money that goes back to the customer. All refunds of an order but the failed and
-- canceled ones reserve their amount, together at most the order's.
CREATE TABLE refunds (
    account_id         uuid        NOT NULL REFERENCES accounts (id),
    id                 uuid        NOT NULL, -- UUIDv8 derived from account and key (R5)
    order_id           uuid        NOT NULL,
    idempotency_key    text        NOT NULL,
    amount             bigint      NOT NULL CHECK (amount > 0), -- what was left of the order, if the client named no amount (R4)
    currency           text        NOT NULL CHECK (currency ~ '^[a-z]{3}$'),
    reason             text        CHECK (reason IN ('duplicate', 'fraudulent', 'requested_by_customer')),
    status             text        NOT NULL
        CHECK (status IN ('pending', 'requires_action', 'succeeded', 'failed', 'canceled')),
    refund_id          text        CHECK (char_length(refund_id) BETWEEN 1 AND 255), -- the provider's; without it the refund is not in orders.amount_refunded
    failure_reason     text        CHECK (char_length(failure_reason) BETWEEN 1 AND 255),
    provider_failed_at timestamptz, -- last 500 that the provider replays for a day; it may still make the refund (R12)
    created_at         timestamptz NOT NULL,
    FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id),

    -- Every other status comes from the provider, with its id.
    CONSTRAINT status_has_refund CHECK (refund_id IS NOT NULL OR status IN ('pending', 'failed')),
    CONSTRAINT failure_has_status CHECK (failure_reason IS NULL OR status IN ('failed', 'canceled'))
);

-- For the list of an order's refunds.
CREATE INDEX refunds_newest ON refunds (account_id, order_id, created_at DESC, id DESC);

-- For reconciliation, which reads an account's refunds by time.
CREATE INDEX refunds_made ON refunds (account_id, created_at DESC, id DESC);

-- One row per refund at the provider. Partial, as for orders.
CREATE UNIQUE INDEX refunds_refund_id_unique ON refunds (account_id, refund_id)
    WHERE refund_id IS NOT NULL;

ALTER TABLE refunds ADD PRIMARY KEY (account_id, id);

-- Permanent, as in orders (R17). It is the last one, because an order looks its key up here.
ALTER TABLE refunds ADD CONSTRAINT refunds_key_once UNIQUE (account_id, idempotency_key);

-- What happened to a resource, written in the transaction that made it happen.
-- Rows are never updated. No foreign key: each row is written together with a row that
-- references the account, and a second reference would lock the account's row.
CREATE TABLE audit_records (
    account_id    uuid        NOT NULL,
    id            uuid        NOT NULL,
    action        short_name  NOT NULL,
    resource_type short_name  NOT NULL,
    resource_id   reference   NOT NULL,
    data          jsonb       NOT NULL DEFAULT '{}',
    request_ip    inet, -- NULL without a client: completer, operator
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_freeze_min_age = 0 -- frozen by the first vacuum, so that no later one writes the page again
);

-- For a resource's history. Without created_at, the entries of one resource are equal and deduplicated.
CREATE INDEX audit_records_resource ON audit_records (account_id, resource_id);

-- Work to do after a transaction, written in it (R15). A row is deleted when its work is done.
-- No foreign key, as audit_records.
CREATE TABLE staged_jobs (
    account_id uuid        NOT NULL,
    id         uuid        NOT NULL,
    kind       short_name  NOT NULL,
    args       jsonb       NOT NULL,
    run_at     timestamptz NOT NULL DEFAULT now(), -- not earlier; a worker that takes the job moves it forward, as a lease
    attempt    counter     NOT NULL DEFAULT 0,     -- fence: a worker finishes the attempt that it took
    last_error error_text,
    failed_at  timestamptz, -- after the last attempt; an operator has to act
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0, -- a queue: its size says nothing about its dead rows
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0    -- it is small, so vacuum it at full speed
);

-- For the worker, and for the count of failed jobs.
CREATE INDEX staged_jobs_due ON staged_jobs (kind, run_at) WHERE failed_at IS NULL;
CREATE INDEX staged_jobs_dead ON staged_jobs (kind, failed_at) WHERE failed_at IS NOT NULL;

-- +goose Down
DROP TABLE staged_jobs, audit_records, refunds, orders;
DROP DOMAIN reference, email_address, currency, price, order_status;
