-- +goose Up
-- Limits of one column are domains. PostgreSQL parses all CHECKs of a table in each
-- statement that writes it, but a domain only where a value is assigned to it.
CREATE DOMAIN idempotency_key AS text -- one expression with {16,255} is 40 times slower
    CHECK (char_length(VALUE) BETWEEN 16 AND 255 AND VALUE !~ '[^\x21-\x7e]');
CREATE DOMAIN name64 AS text CHECK (char_length(VALUE) BETWEEN 1 AND 64);
CREATE DOMAIN http_method AS text CHECK (char_length(VALUE) BETWEEN 1 AND 16);
CREATE DOMAIN http_path AS text CHECK (char_length(VALUE) BETWEEN 1 AND 512);
CREATE DOMAIN fingerprint AS bytea CHECK (octet_length(VALUE) = 33); -- version byte + SHA-256 (R3)
CREATE DOMAIN response_code AS integer CHECK (VALUE BETWEEN 200 AND 499); -- final outcomes (R11)
CREATE DOMAIN error_message AS text CHECK (char_length(VALUE) <= 500);
CREATE DOMAIN attempt_number AS integer CHECK (VALUE >= 1);
CREATE DOMAIN attempt_count AS integer CHECK (VALUE >= 0);

CREATE TABLE accounts (
    id         uuid        PRIMARY KEY, -- UUIDv4: derived ids are unique in all databases (R5)
    name       text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_keys (
    account_id uuid        NOT NULL REFERENCES accounts (id),
    id         uuid        NOT NULL,
    key_hash   bytea       NOT NULL CHECK (octet_length(key_hash) = 32), -- SHA-256
    prefix     text        NOT NULL CHECK (char_length(prefix) BETWEEN 4 AND 16),
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,

    PRIMARY KEY (account_id, id),

    -- account_id is in every unique constraint, for distribution (R20).
    CONSTRAINT api_keys_key_hash_unique UNIQUE (key_hash, account_id)
);

CREATE TABLE idempotency_keys (
    account_id         uuid            NOT NULL REFERENCES accounts (id),
    id                 uuid            NOT NULL, -- derived from account and key (R5)
    idempotency_key    idempotency_key NOT NULL,
    operation          name64          NOT NULL,
    request_method     http_method     NOT NULL,
    request_path       http_path       NOT NULL,
    request_params     bytea           NOT NULL, -- canonical JSON, for resumed runs (R4)
    params_hash        fingerprint     NOT NULL,
    recovery_point     name64          NOT NULL,
    lease_token        uuid            NOT NULL, -- fence (R7)
    locked_at          timestamptz,              -- start of the lease (R8)
    attempt            attempt_number  NOT NULL, -- runs; no fence (R7)
    completer_attempt  attempt_count   NOT NULL DEFAULT 0,
    last_run_at        timestamptz     NOT NULL,
    last_error         error_message,
    action_required_at timestamptz,              -- the last run waits for an action
    needs_review_at    timestamptz,              -- the completer gave up
    created_at         timestamptz     NOT NULL,
    finished_at        timestamptz,
    response_code      response_code,
    response_headers   jsonb,
    response_body      bytea,                    -- jsonb reorders members and rejects \u0000 (R14)

    -- Of concurrent claims, one succeeds (R1).
    CONSTRAINT idempotency_keys_idempotency_key_unique UNIQUE (account_id, idempotency_key),

    CONSTRAINT finished_has_response CHECK (
        (recovery_point = 'finished') = (finished_at IS NOT NULL)
        AND num_nonnulls(finished_at, response_code, response_headers, response_body) IN (0, 4)
        AND num_nonnulls(finished_at, locked_at, action_required_at) < 2
    )
) WITH (
    fillfactor = 90, -- for HOT updates
    autovacuum_vacuum_scale_factor = 0.02, -- the default is 20 %
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);

-- The predicates avoid recovery_point, which each step changes: an update of an indexed
-- column is no HOT update.
CREATE INDEX idempotency_keys_unfinished_idx ON idempotency_keys (last_run_at) -- completer
    WHERE finished_at IS NULL AND needs_review_at IS NULL AND action_required_at IS NULL;
CREATE INDEX idempotency_keys_action_required_idx ON idempotency_keys (last_run_at)
    WHERE finished_at IS NULL AND needs_review_at IS NULL AND action_required_at IS NOT NULL;
CREATE INDEX idempotency_keys_needs_review_idx ON idempotency_keys (needs_review_at) -- operators
    WHERE finished_at IS NULL AND needs_review_at IS NOT NULL;
CREATE INDEX idempotency_keys_finished_idx ON idempotency_keys (finished_at) -- reaper
    WHERE finished_at IS NOT NULL;

-- Created last: without statistics, of equal indexes the planner takes the newest.
ALTER TABLE idempotency_keys ADD PRIMARY KEY (account_id, id);

-- What remains of a reaped key (R17).
CREATE TABLE expired_keys (
    account_id   uuid        NOT NULL,
    id           uuid        NOT NULL,
    operation    name64      NOT NULL,
    request_path http_path   NOT NULL, -- names the order of a refund
    created_at   timestamptz NOT NULL,
    finished_at  timestamptz NOT NULL,

    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.05, -- the table only grows
    autovacuum_freeze_min_age = 0 -- later vacuums write nothing
);

-- +goose Down
DROP TABLE expired_keys, idempotency_keys, api_keys, accounts;
DROP DOMAIN idempotency_key, name64, http_method, http_path, fingerprint, response_code, error_message, attempt_number, attempt_count;
