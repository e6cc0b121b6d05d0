-- +goose Up
CREATE DOMAIN email_address AS text CHECK (char_length(VALUE) BETWEEN 3 AND 254);
CREATE DOMAIN currency AS text CHECK (VALUE ~ '^[a-z]{3}$');
CREATE DOMAIN amount AS bigint CHECK (VALUE > 0); -- in the currency's smallest unit
CREATE DOMAIN external_id AS text CHECK (char_length(VALUE) BETWEEN 1 AND 255);
CREATE DOMAIN order_status AS text
    CHECK (VALUE IN ('pending', 'requires_action', 'paid', 'payment_failed', 'partially_refunded', 'refunded'));

-- +goose StatementBegin
CREATE FUNCTION order_is_consistent(
    status order_status, amount amount, amount_refunded bigint, items jsonb,
    payment_intent_id external_id, paid_at timestamptz, failure_code text, decline_code text
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN amount_refunded BETWEEN 0 AND amount
       AND jsonb_typeof(items) = 'array'
       -- Exactly the paid orders, also refunded ones, have a time of payment, and they have an intent.
       AND (status IN ('paid', 'partially_refunded', 'refunded')) = (paid_at IS NOT NULL)
       AND (paid_at IS NULL OR payment_intent_id IS NOT NULL)
       -- Exactly the failed orders have a reason.
       AND (status = 'payment_failed') = (failure_code IS NOT NULL)
       AND (decline_code IS NULL OR failure_code IS NOT NULL);
END
$$;
-- +goose StatementEnd

-- There is no foreign key to accounts, for the reason stated at idempotency_keys. The id derives from
-- account and key, so the primary key permits one order per key, even after the key was reaped (R17,
-- used for ever).
CREATE TABLE orders (
    account_id        uuid           NOT NULL,
    id                uuid           NOT NULL, -- derived from account and key (R5, derived ids)
    idempotency_key   text           NOT NULL,
    reference         varchar(64)    COLLATE "C", -- the client's own name for the purchase
    email             email_address  NOT NULL,
    currency          currency       NOT NULL,
    amount            amount         NOT NULL,
    amount_refunded   bigint         NOT NULL DEFAULT 0,
    items             jsonb          NOT NULL, -- no domain, because pgx cannot encode JSON for one
    metadata          json           NOT NULL, -- not jsonb, which rejects \u0000
    payment_method    external_id    NOT NULL,
    off_session       boolean        NOT NULL DEFAULT false, -- the customer is absent, and cannot approve the payment
    status            order_status   NOT NULL,
    payment_intent_id external_id    COLLATE "C", -- committed before the confirm
    create_attempt    attempt_number NOT NULL DEFAULT 1, -- part of the provider's key, because Stripe replays a 500 under the same key
    confirm_attempt   attempt_number NOT NULL DEFAULT 1,
    created_at        timestamptz    NOT NULL,
    paid_at           timestamptz,
    failure_code      text,
    decline_code      text,

    CONSTRAINT order_is_consistent CHECK (order_is_consistent(
        status, amount, amount_refunded, items, payment_intent_id, paid_at, failure_code, decline_code
    ))
) WITH (
    fillfactor = 90, -- leaves space in each page for HOT updates
    autovacuum_vacuum_scale_factor = 0.01, -- the default is 20 %
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);

CREATE INDEX orders_account_id_created_at_idx ON orders (account_id, created_at, id);

-- No intent pays for two orders.
CREATE UNIQUE INDEX orders_payment_intent_id_unique ON orders (account_id, payment_intent_id)
    WHERE payment_intent_id IS NOT NULL;

-- At most one order of a reference has not failed (R26, one order per reference). Failed orders also
-- have their id in the index, so any number of them may have the same reference. The index reads
-- failure_code, which only failed orders have, and not the status, so that an update of the status alone
-- stays a HOT update. Lists by reference use the index, too.
CREATE UNIQUE INDEX orders_reference_unique
    ON orders (account_id, reference, (CASE WHEN failure_code IS NOT NULL THEN id END)) NULLS NOT DISTINCT
    WHERE reference IS NOT NULL;

ALTER TABLE orders ADD PRIMARY KEY (account_id, id);

-- There is no foreign key to accounts, because each INSERT would lock the account's row.
CREATE TABLE audit_records (
    account_id    uuid        NOT NULL,
    id            uuid        NOT NULL,
    action        name64      NOT NULL,
    resource_type name64      NOT NULL,
    resource_id   external_id NOT NULL COLLATE "C",
    data          jsonb       NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now(),

    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.05, -- the table only grows
    autovacuum_freeze_min_age = 0 -- the first vacuum freezes the rows, so later ones do not rewrite them
);

-- The index does not contain created_at, so that all entries of a resource are equal and PostgreSQL
-- deduplicates them.
CREATE INDEX audit_records_account_id_resource_id_idx ON audit_records (account_id, resource_id);

-- A job is work that must follow a transaction, so that transaction inserts it (R15, staged receipt).
CREATE TABLE staged_jobs (
    account_id uuid          NOT NULL,
    id         uuid          NOT NULL,
    kind       name64        NOT NULL COLLATE "C",
    args       jsonb         NOT NULL,
    run_at     timestamptz   NOT NULL DEFAULT now(), -- a worker that claims the job moves it forward, so it is also the lease
    attempt    attempt_count NOT NULL DEFAULT 0, -- incremented by each claim, so it is also the worker's fence
    last_error error_message,
    failed_at  timestamptz,
    created_at timestamptz   NOT NULL DEFAULT now(),

    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0, -- a queue's dead rows do not depend on its size, so only the threshold counts
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX staged_jobs_pending_idx ON staged_jobs (kind, run_at) WHERE failed_at IS NULL;
CREATE INDEX staged_jobs_failed_idx ON staged_jobs (kind, failed_at) WHERE failed_at IS NOT NULL;

-- +goose Down
DROP TABLE staged_jobs, audit_records, orders;
DROP FUNCTION order_is_consistent;
DROP DOMAIN email_address, currency, amount, external_id, order_status;
