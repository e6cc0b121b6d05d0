-- +goose Up
CREATE TABLE idempotency_keys (
    id               uuid        NOT NULL,
    account_id       uuid        NOT NULL REFERENCES accounts (id),
    idempotency_key  text        NOT NULL CHECK (idempotency_key ~ '^[\x21-\x7e]{16,255}$'),
    operation        text        NOT NULL CHECK (char_length(operation) BETWEEN 1 AND 64),
    request_method   text        NOT NULL CHECK (char_length(request_method) BETWEEN 1 AND 16),
    request_path     text        NOT NULL CHECK (char_length(request_path) BETWEEN 1 AND 512),
    request_params   bytea       NOT NULL,
    params_hash      bytea       NOT NULL CHECK (octet_length(params_hash) = 33),
    recovery_point   text        NOT NULL CHECK (char_length(recovery_point) BETWEEN 1 AND 64),
    lease_token      uuid        NOT NULL,
    attempt          integer     NOT NULL CHECK (attempt >= 1),
    locked_at        timestamptz,
    last_run_at      timestamptz NOT NULL,
    created_at       timestamptz NOT NULL,
    finished_at      timestamptz,
    needs_review_at  timestamptz,
    last_error       text        CHECK (char_length(last_error) <= 500),
    response_code    integer     CHECK (response_code BETWEEN 200 AND 499),
    response_headers jsonb,
    response_body    bytea,
    PRIMARY KEY (account_id, id),
    UNIQUE (account_id, idempotency_key),
    -- A key is finished exactly when it holds a whole response, and then nobody holds it.
    CONSTRAINT finished_has_response CHECK (
        (recovery_point = 'finished')
            = (finished_at IS NOT NULL AND response_code IS NOT NULL AND response_headers IS NOT NULL AND response_body IS NOT NULL)
        AND (recovery_point = 'finished' OR num_nonnulls(finished_at, response_code, response_headers, response_body) = 0)
        AND (recovery_point <> 'finished' OR locked_at IS NULL)
    )
);
COMMENT ON TABLE idempotency_keys IS 'A request as a small state machine: one row per (account, Idempotency-Key).';
COMMENT ON COLUMN idempotency_keys.id IS 'UUIDv8 derived from account and key (R5); provider keys derive from it.';
COMMENT ON COLUMN idempotency_keys.request_params IS 'The received JSON in RFC 8785 form. A resumed run uses it, never the current request (R4).';
COMMENT ON COLUMN idempotency_keys.params_hash IS 'Fingerprint: version byte + SHA-256 over method, path and request_params (R3).';
COMMENT ON COLUMN idempotency_keys.lease_token IS 'Fence: random, new at each claim or takeover; every later write names it (R7).';
COMMENT ON COLUMN idempotency_keys.attempt IS 'Runs so far, for people. Never a fence: counters repeat after a restore (R7).';
COMMENT ON COLUMN idempotency_keys.locked_at IS 'Start of the lease; NULL when nobody holds it. Judged by this database''s clock only (R8).';
COMMENT ON COLUMN idempotency_keys.response_body IS 'The bytes that were answered. bytea: jsonb would reorder them and refuse \u0000 (R14).';

-- The completer looks for unfinished keys, the reaper for finished ones.
CREATE INDEX idempotency_keys_unfinished ON idempotency_keys (last_run_at)
    WHERE recovery_point <> 'finished' AND needs_review_at IS NULL;
CREATE INDEX idempotency_keys_finished ON idempotency_keys (finished_at)
    WHERE recovery_point = 'finished';

-- +goose Down
DROP TABLE idempotency_keys;
