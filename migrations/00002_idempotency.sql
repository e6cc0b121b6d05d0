-- +goose Up
-- Column limits are domains, and row limits are one function, because PostgreSQL parses the text of a
-- table's CHECKs in each statement that writes the table. That would cost a tenth of an order's CPU. A
-- domain is checked only when a value is assigned, and a function is compiled once per session.
CREATE DOMAIN idempotency_key AS text -- a single regular expression with {16,255} is 40 times slower than both conditions
    CHECK (char_length(VALUE) BETWEEN 16 AND 255 AND VALUE !~ '[^\x21-\x7e]');
CREATE DOMAIN name64 AS text CHECK (char_length(VALUE) BETWEEN 1 AND 64);
CREATE DOMAIN http_method AS text CHECK (char_length(VALUE) BETWEEN 1 AND 16);
CREATE DOMAIN http_path AS text CHECK (char_length(VALUE) BETWEEN 1 AND 512);
CREATE DOMAIN fingerprint AS bytea CHECK (octet_length(VALUE) = 33); -- version byte + SHA-256
CREATE DOMAIN response_code AS integer CHECK (VALUE BETWEEN 200 AND 499); -- only final outcomes are stored
CREATE DOMAIN error_message AS text CHECK (char_length(VALUE) <= 500);
CREATE DOMAIN attempt_number AS integer CHECK (VALUE >= 1);
CREATE DOMAIN attempt_count AS integer CHECK (VALUE >= 0);

-- +goose StatementBegin
CREATE FUNCTION idempotency_key_is_consistent(
    recovery_point name64, finished_at timestamptz, locked_at timestamptz, action_required_at timestamptz,
    response_code response_code, response_headers jsonb, response_body bytea
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN (recovery_point = 'finished') = (finished_at IS NOT NULL)
       AND num_nonnulls(finished_at, response_code, response_headers, response_body) IN (0, 4)
       AND num_nonnulls(finished_at, locked_at, action_required_at) < 2;
END
$$;
-- +goose StatementEnd

-- There is no foreign key to accounts, because each claim would lock the account's row, and all clients
-- of a shop share it. account_id comes from an API key, whose own foreign key guarantees the account.
CREATE TABLE idempotency_keys (
    account_id         uuid            NOT NULL,
    id                 uuid            NOT NULL, -- derived from account and key (R5, derived ids)
    idempotency_key    idempotency_key NOT NULL COLLATE "C",
    operation          name64          NOT NULL,
    request_method     http_method     NOT NULL,
    request_path       http_path       NOT NULL,
    request_params     bytea           NOT NULL, -- canonical JSON, from which runs resume
    params_hash        fingerprint     NOT NULL,
    recovery_point     name64          NOT NULL,
    lease_token        uuid            NOT NULL, -- required by each write of the run (R7, fence)
    locked_at          timestamptz,              -- start of the lease
    attempt            attempt_number  NOT NULL, -- counts runs; after a restore it can repeat, so lease_token fences writes
    completer_attempt  attempt_count   NOT NULL DEFAULT 0,
    last_run_at        timestamptz     NOT NULL,
    last_error         error_message,
    failed_runs        jsonb,                    -- the errors of runs without a final outcome, for operators
    action_required_at timestamptz,              -- set if the last run ended because the customer must act
    needs_review_at    timestamptz,              -- the completer gave up
    created_at         timestamptz     NOT NULL,
    finished_at        timestamptz,
    response_code      response_code,
    response_headers   jsonb,
    response_body      bytea,                    -- not jsonb, which reorders members and rejects \u0000 (R14, the same bytes)

    CONSTRAINT key_is_consistent CHECK (idempotency_key_is_consistent(
        recovery_point, finished_at, locked_at, action_required_at, response_code, response_headers, response_body
    ))
) WITH (
    fillfactor = 90, -- leaves space in each page for HOT updates
    autovacuum_vacuum_scale_factor = 0.02, -- the default is 20 %
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);

-- Only one of several concurrent claims succeeds (R1, claim by insert). Indexed texts have the collation
-- C, because an upgrade of the C library or ICU can change the order of other collations, and their
-- indexes would then miss rows.
CREATE UNIQUE INDEX idempotency_keys_idempotency_key_unique ON idempotency_keys (account_id, idempotency_key);

-- The predicates do not contain recovery_point, because each step changes it, and an update of a column
-- in an index or its predicate is not a HOT update.
CREATE INDEX idempotency_keys_unfinished_idx ON idempotency_keys (last_run_at) -- completer
    WHERE finished_at IS NULL AND needs_review_at IS NULL AND action_required_at IS NULL;
CREATE INDEX idempotency_keys_action_required_idx ON idempotency_keys (last_run_at)
    WHERE finished_at IS NULL AND needs_review_at IS NULL AND action_required_at IS NOT NULL;
CREATE INDEX idempotency_keys_needs_review_idx ON idempotency_keys (needs_review_at) -- operators
    WHERE finished_at IS NULL AND needs_review_at IS NOT NULL;
CREATE INDEX idempotency_keys_finished_idx ON idempotency_keys (finished_at) -- reaper
    WHERE finished_at IS NOT NULL;

-- The primary key is created last, because a planner without statistics chooses the newest of several
-- equally good indexes.
ALTER TABLE idempotency_keys ADD PRIMARY KEY (account_id, id);

-- Each deleted key leaves a row here, so that it can never be used again (R17, used for ever).
CREATE TABLE expired_keys (
    account_id   uuid        NOT NULL,
    id           uuid        NOT NULL,
    operation    name64      NOT NULL,
    request_path http_path   NOT NULL, -- for a refund, it contains the order's id
    created_at   timestamptz NOT NULL,
    finished_at  timestamptz NOT NULL,
    lost         boolean     NOT NULL DEFAULT false, -- an operator expired the key because its order was lost, so responses name no order

    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.05, -- the table only grows
    autovacuum_freeze_min_age = 0 -- the first vacuum freezes the rows, so later ones do not rewrite them
);

-- If a claim or a fence matches no row, its statement must fail, because the COMMIT that follows it is
-- already sent. The error begins with a name, which an operator finds in the server's log. The function
-- is IMMUTABLE, because Citus accepts no volatile function in these statements.
-- +goose StatementBegin
CREATE FUNCTION idempotency_assert(ok boolean, condition text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF NOT ok AND condition = 'claim_conflict' THEN
        RAISE 'claim_conflict: another request has claimed this idempotency key'
            USING ERRCODE = 'IK001', HINT = 'The engine answers the request from the key''s row. No action is needed.';
    ELSIF NOT ok THEN
        RAISE 'lease_lost: this run no longer holds its idempotency key'
            USING ERRCODE = 'IK002', HINT = 'The run stops and writes nothing. No action is needed.';
    END IF;
    RETURN true;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE expired_keys, idempotency_keys;
DROP FUNCTION idempotency_assert, idempotency_key_is_consistent;
DROP DOMAIN idempotency_key, name64, http_method, http_path, fingerprint, response_code, error_message, attempt_number, attempt_count;
