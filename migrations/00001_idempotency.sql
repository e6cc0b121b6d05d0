-- +goose Up
-- What the engine needs: accounts and idempotency keys. 00002 adds what the keys
-- create. docs/guides/engine-only.md takes this file alone.

-- In a table that requests write, a limit on one column is a domain. PostgreSQL
-- parses every CHECK of a table again for each statement that writes it, whichever
-- columns the statement names. A domain is checked only for a value that is
-- assigned (docs/bench/store.md).
CREATE DOMAIN client_key AS text -- visible ASCII; one expression with {16,255} takes 40 times as long
    CHECK (char_length(VALUE) BETWEEN 16 AND 255 AND VALUE !~ '[^\x21-\x7e]');
CREATE DOMAIN short_name AS text CHECK (char_length(VALUE) BETWEEN 1 AND 64);
CREATE DOMAIN http_method AS text CHECK (char_length(VALUE) BETWEEN 1 AND 16);
CREATE DOMAIN http_path AS text CHECK (char_length(VALUE) BETWEEN 1 AND 512);
CREATE DOMAIN fingerprint AS bytea CHECK (octet_length(VALUE) = 33); -- version byte + SHA-256 (R3)
CREATE DOMAIN stored_status AS integer CHECK (VALUE BETWEEN 200 AND 499); -- only final outcomes are stored (R11)
CREATE DOMAIN error_text AS text CHECK (char_length(VALUE) <= 500);
CREATE DOMAIN attempt_number AS integer CHECK (VALUE >= 1);
CREATE DOMAIN counter AS integer CHECK (VALUE >= 0);

-- A customer of the API. Every other table carries the account's id (R20).
CREATE TABLE accounts (
    id         uuid        PRIMARY KEY, -- random (UUIDv4): derived ids hash it, so it must never repeat (R5)
    name       text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT now()
);

-- The credentials of an account.
CREATE TABLE api_keys (
    account_id uuid        NOT NULL REFERENCES accounts (id),
    id         uuid        NOT NULL,
    key_hash   bytea       NOT NULL CHECK (octet_length(key_hash) = 32), -- SHA-256; the key itself is not stored
    prefix     text        NOT NULL CHECK (char_length(prefix) BETWEEN 4 AND 16), -- of the key, so that operators can tell keys apart
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz, -- NULL while the key is valid

    -- Every unique constraint includes account_id, so that the tables can be distributed
    -- by it (R20). Here the hash comes first, because authentication knows nothing else.
    CONSTRAINT api_keys_key_hash_unique UNIQUE (key_hash, account_id),
    PRIMARY KEY (account_id, id)
);

-- A request as a state machine: one row per account and Idempotency-Key. The reaper
-- deletes the row some days after the request has finished.
CREATE TABLE idempotency_keys (
    account_id        uuid           NOT NULL REFERENCES accounts (id),
    id                uuid           NOT NULL, -- UUIDv8 derived from account and key; provider keys derive from it (R5)
    idempotency_key   client_key     NOT NULL,
    operation         short_name     NOT NULL,
    request_method    http_method    NOT NULL,
    request_path      http_path      NOT NULL,
    request_params    bytea          NOT NULL, -- the received JSON in RFC 8785 form; a resumed run reads nothing else (R4)
    params_hash       fingerprint    NOT NULL, -- of method, path and request_params
    recovery_point    short_name     NOT NULL,
    lease_token       uuid           NOT NULL, -- fence: random, new for each claim and takeover (R7)
    locked_at         timestamptz,             -- start of the lease by the database's clock (R8); NULL without a lease
    attempt           attempt_number NOT NULL, -- runs so far, for operators; never a fence (R7)
    completer_attempt counter        NOT NULL DEFAULT 0, -- runs by the completer; retries of the client do not count
    last_run_at       timestamptz    NOT NULL,
    last_error        error_text,
    needs_review_at   timestamptz,             -- after the completer's last attempt
    created_at        timestamptz    NOT NULL,
    finished_at       timestamptz,
    response_code     stored_status,
    response_headers  jsonb,
    response_body     bytea,                   -- the exact bytes; jsonb would reorder members and reject \u0000 (R14)

    -- One row per key. The claim is an INSERT that this constraint lets through once (R1).
    UNIQUE (account_id, idempotency_key),

    -- Finished means: the whole response is stored, and no run holds the lease.
    CONSTRAINT finished_has_response CHECK (
        (recovery_point = 'finished') = (finished_at IS NOT NULL)
        AND num_nonnulls(finished_at, response_code, response_headers, response_body) IN (0, 4)
        AND num_nonnulls(finished_at, locked_at) < 2
    )
) WITH (
    fillfactor = 90, -- leaves space on the page for the next version of a row (HOT update)
    autovacuum_vacuum_scale_factor = 0.02, -- an order leaves two dead rows here; the default waits for a fifth of the table
    autovacuum_vacuum_threshold = 1000,    -- but not for every few rows of a small table
    autovacuum_analyze_scale_factor = 0.02
);

-- Their predicates name finished_at and not recovery_point: an update that changes a
-- column of an index, its predicate included, cannot be a HOT update, and
-- recovery_point changes in every step.
CREATE INDEX idempotency_keys_unfinished ON idempotency_keys (last_run_at) -- for the completer
    WHERE finished_at IS NULL AND needs_review_at IS NULL;
CREATE INDEX idempotency_keys_needs_review ON idempotency_keys (needs_review_at) -- for operators
    WHERE finished_at IS NULL AND needs_review_at IS NOT NULL;
CREATE INDEX idempotency_keys_finished ON idempotency_keys (finished_at) -- for the reaper
    WHERE finished_at IS NOT NULL;

-- Last, here and below: on a table without statistics every index that begins with
-- account_id has the same estimated cost, and the planner takes the newest one.
ALTER TABLE idempotency_keys ADD PRIMARY KEY (account_id, id);

-- +goose Down
DROP TABLE idempotency_keys, api_keys, accounts;
DROP DOMAIN client_key, short_name, http_method, http_path, fingerprint, stored_status, error_text, attempt_number, counter;
