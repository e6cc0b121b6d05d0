-- +goose Up
-- What package idempotency needs, and nothing of orders: what the migrations of
-- the whole project come to for these two tables. A test compares them.

-- PostgreSQL reads every CHECK of a table anew in each statement that writes it.
-- A domain is checked where a value is assigned, and only there.
CREATE DOMAIN client_key AS text CHECK (char_length(VALUE) BETWEEN 16 AND 255 AND VALUE !~ '[^\x21-\x7e]');
CREATE DOMAIN short_name AS text CHECK (char_length(VALUE) BETWEEN 1 AND 64);
CREATE DOMAIN reference AS text CHECK (char_length(VALUE) BETWEEN 1 AND 255);
CREATE DOMAIN http_method AS text CHECK (char_length(VALUE) BETWEEN 1 AND 16);
CREATE DOMAIN http_path AS text CHECK (char_length(VALUE) BETWEEN 1 AND 512);
CREATE DOMAIN stored_status AS integer CHECK (VALUE BETWEEN 200 AND 499);
CREATE DOMAIN fingerprint AS bytea CHECK (octet_length(VALUE) = 33);
CREATE DOMAIN error_text AS text CHECK (char_length(VALUE) <= 500);
CREATE DOMAIN counter AS integer CHECK (VALUE >= 0);
CREATE DOMAIN attempt_number AS integer CHECK (VALUE >= 1);

-- Yours, if you have accounts already: the engine reads the id alone.
CREATE TABLE accounts (
    id         uuid        PRIMARY KEY, -- random (UUIDv4): derived ids hash it (R5)
    name       text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE idempotency_keys (
    id                uuid           NOT NULL,
    account_id        uuid           NOT NULL REFERENCES accounts (id),
    idempotency_key   client_key     NOT NULL,
    operation         short_name     NOT NULL,
    request_method    http_method    NOT NULL,
    request_path      http_path      NOT NULL,
    request_params    bytea          NOT NULL,
    params_hash       fingerprint    NOT NULL,
    recovery_point    short_name     NOT NULL,
    lease_token       uuid           NOT NULL,
    attempt           attempt_number NOT NULL,
    locked_at         timestamptz,
    last_run_at       timestamptz    NOT NULL,
    created_at        timestamptz    NOT NULL,
    finished_at       timestamptz,
    needs_review_at   timestamptz,
    last_error        error_text,
    response_code     stored_status,
    response_headers  jsonb,
    response_body     bytea,
    completer_attempt counter        NOT NULL DEFAULT 0,
    traceparent       varchar(55), -- of the first run's span, for later ones to link to
    UNIQUE (account_id, idempotency_key),
    -- A key is finished exactly when it holds a whole response, and then nobody holds it.
    CONSTRAINT finished_has_response CHECK (
        (recovery_point = 'finished') = (finished_at IS NOT NULL)
        AND num_nonnulls(finished_at, response_code, response_headers, response_body) IN (0, 4)
        AND num_nonnulls(finished_at, locked_at) < 2
    )
) WITH (
    fillfactor = 90, -- room for a row's next version on its page
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);

-- For the completer, the reaper and the operator.
CREATE INDEX idempotency_keys_unfinished ON idempotency_keys (last_run_at)
    WHERE finished_at IS NULL AND needs_review_at IS NULL;
CREATE INDEX idempotency_keys_finished ON idempotency_keys (finished_at)
    WHERE finished_at IS NOT NULL;
CREATE INDEX idempotency_keys_needs_review ON idempotency_keys (needs_review_at)
    WHERE finished_at IS NULL AND needs_review_at IS NOT NULL;

-- Last: of indexes that look equally good, on a table that nobody has analysed
-- yet, the planner takes the one that was made last.
ALTER TABLE idempotency_keys ADD PRIMARY KEY (account_id, id);

-- Not the engine's, but its tests take it for the table of an operation: what
-- happened to a resource, written in the transaction that made it happen.
CREATE TABLE audit_records (
    id            uuid        NOT NULL,
    account_id    uuid        NOT NULL,
    action        short_name  NOT NULL,
    resource_type short_name  NOT NULL,
    resource_id   reference   NOT NULL,
    data          jsonb       NOT NULL DEFAULT '{}',
    request_ip    inet,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_freeze_min_age = 0
);
CREATE INDEX audit_records_resource ON audit_records (account_id, resource_id);

-- +goose Down
DROP TABLE audit_records, idempotency_keys, accounts;
DROP DOMAIN client_key, short_name, reference, http_method, http_path, stored_status, fingerprint, error_text, counter, attempt_number;
