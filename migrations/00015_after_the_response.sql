-- +goose Up
ALTER TABLE orders
    ALTER COLUMN email DROP NOT NULL,
    ADD COLUMN cancel_requested_at timestamptz, -- every later run closes the order (R29, durable cancel)
    ADD COLUMN erased_at           timestamptz,
    ADD COLUMN disputes            jsonb,       -- as the provider lists them; NULL if it never listed one
    ADD COLUMN provider_read_at    timestamptz; -- when the last applied read of its refunds and disputes began

ALTER TABLE refunds
    ALTER COLUMN idempotency_key DROP NOT NULL, -- made at the provider's dashboard, or the row was lost
    ADD COLUMN source text NOT NULL DEFAULT 'api',
    ADD CONSTRAINT source_is_known CHECK (source IN ('api', 'provider')) NOT VALID,
    ADD CONSTRAINT provider_has_no_key CHECK (source = 'api' OR idempotency_key IS NULL) NOT VALID;

-- The provider's events by id, so that each is handled once. No account_id (R20's exception): an event
-- names an intent, and the index of the orders decides whose it is. On Citus both tables stay local.
CREATE TABLE provider_events (
    id          external_id COLLATE "C" PRIMARY KEY,
    type        name64      NOT NULL,
    object_id   external_id,
    intent_id   external_id COLLATE "C",
    received_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX provider_events_received_at_idx ON provider_events (received_at);

CREATE TABLE provider_event_place (
    singleton  boolean     PRIMARY KEY DEFAULT true CHECK (singleton),
    read_until timestamptz NOT NULL -- by the provider's clock
);

CREATE DOMAIN endpoint_url AS text CHECK (char_length(VALUE) BETWEEN 8 AND 2048);
CREATE TABLE event_endpoints (
    account_id      uuid           PRIMARY KEY REFERENCES accounts (id), -- one per account
    id              uuid           NOT NULL,
    url             endpoint_url   NOT NULL,
    secret_version  attempt_number NOT NULL DEFAULT 1,
    rotated_at      timestamptz,   -- for a day, the version before signs too
    key_fingerprint bytea          NOT NULL CHECK (octet_length(key_fingerprint) = 8),
    created_at      timestamptz    NOT NULL DEFAULT now(),
    disabled_at     timestamptz,   -- 410, or three days of failures; staging goes on
    attempt         attempt_count  NOT NULL DEFAULT 0, -- failures in a row: backoff belongs to the endpoint
    run_at          timestamptz    NOT NULL DEFAULT now(),
    failing_since   timestamptz,
    last_error      error_message
);

CREATE TABLE discrepancies (
    account_id      uuid        NOT NULL, -- the zero UUID if it concerns none
    id              uuid        NOT NULL, -- derived from kind and objects
    kind            name64      NOT NULL,
    data            jsonb       NOT NULL, -- no personal data
    found_at        timestamptz NOT NULL DEFAULT now(),
    resolved_at     timestamptz,
    acknowledged_at timestamptz,
    acknowledged_by text,
    note            text,
    PRIMARY KEY (account_id, id)
);
CREATE INDEX discrepancies_open_idx ON discrepancies (found_at)
    WHERE resolved_at IS NULL AND acknowledged_at IS NULL;

-- +goose Down
DROP TABLE discrepancies, event_endpoints, provider_event_place, provider_events;
DROP DOMAIN endpoint_url;
DELETE FROM refunds WHERE idempotency_key IS NULL;
UPDATE orders SET email = 'erased@example.invalid' WHERE email IS NULL;
ALTER TABLE refunds DROP COLUMN source, ALTER COLUMN idempotency_key SET NOT NULL; -- drops its CHECKs
ALTER TABLE orders DROP COLUMN cancel_requested_at, DROP COLUMN erased_at, DROP COLUMN disputes,
    DROP COLUMN provider_read_at, ALTER COLUMN email SET NOT NULL;
