-- +goose Up
-- The limits of a column are a domain, and those of a row a function. PostgreSQL parses the text of
-- a table's CHECKs in each statement that writes it, which would cost a tenth of an order's CPU. A
-- domain is checked only where a value is assigned to it, and a function is compiled once per
-- session.
CREATE DOMAIN idempotency_key AS text -- one expression with {16,255} is 40 times slower
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

-- No foreign key to accounts: each claim would lock the account's row, which all clients of a shop
-- share. The id comes from an API key, whose own foreign key guarantees the account.
CREATE TABLE idempotency_keys (
    account_id         uuid            NOT NULL,
    id                 uuid            NOT NULL, -- derived from account and key (R5, derived ids)
    idempotency_key    idempotency_key NOT NULL COLLATE "C",
    operation          name64          NOT NULL,
    request_method     http_method     NOT NULL,
    request_path       http_path       NOT NULL,
    request_params     bytea           NOT NULL, -- canonical JSON, which resumed runs use
    params_hash        fingerprint     NOT NULL,
    recovery_point     name64          NOT NULL,
    lease_token        uuid            NOT NULL, -- the fence of each write (R7, fence)
    locked_at          timestamptz,              -- start of the lease
    attempt            attempt_number  NOT NULL, -- counts runs, and is no fence
    completer_attempt  attempt_count   NOT NULL DEFAULT 0,
    last_run_at        timestamptz     NOT NULL,
    last_error         error_message,
    failed_runs        jsonb,                    -- the errors of runs without a final outcome, for operators
    action_required_at timestamptz,              -- the last run waits for an action
    needs_review_at    timestamptz,              -- the completer gave up
    created_at         timestamptz     NOT NULL,
    finished_at        timestamptz,
    response_code      response_code,
    response_headers   jsonb,
    response_body      bytea,                    -- jsonb reorders members and rejects \u0000 (R14, the same bytes)

    CONSTRAINT key_is_consistent CHECK (idempotency_key_is_consistent(
        recovery_point, finished_at, locked_at, action_required_at, response_code, response_headers, response_body
    ))
) WITH (
    fillfactor = 90, -- for HOT updates
    autovacuum_vacuum_scale_factor = 0.02, -- the default is 20 %
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);

-- Of concurrent claims, one succeeds (R1, claim by insert). Indexed texts have the collation C,
-- because an upgrade of the C library or ICU can change the order of others, and indexes then miss
-- rows.
CREATE UNIQUE INDEX idempotency_keys_idempotency_key_unique ON idempotency_keys (account_id, idempotency_key);

-- The predicates avoid recovery_point, because each step changes it, and an update of an indexed
-- column is no HOT update.
CREATE INDEX idempotency_keys_unfinished_idx ON idempotency_keys (last_run_at) -- completer
    WHERE finished_at IS NULL AND needs_review_at IS NULL AND action_required_at IS NULL;
CREATE INDEX idempotency_keys_action_required_idx ON idempotency_keys (last_run_at)
    WHERE finished_at IS NULL AND needs_review_at IS NULL AND action_required_at IS NOT NULL;
CREATE INDEX idempotency_keys_needs_review_idx ON idempotency_keys (needs_review_at) -- operators
    WHERE finished_at IS NULL AND needs_review_at IS NOT NULL;
CREATE INDEX idempotency_keys_finished_idx ON idempotency_keys (finished_at) -- reaper
    WHERE finished_at IS NOT NULL;

-- The primary key is created last, because without statistics the planner takes the newest of
-- equally good indexes.
ALTER TABLE idempotency_keys ADD PRIMARY KEY (account_id, id);

-- What remains of a reaped key, so that nobody can use it again (R17, used for ever).
CREATE TABLE expired_keys (
    account_id   uuid        NOT NULL,
    id           uuid        NOT NULL,
    operation    name64      NOT NULL,
    request_path http_path   NOT NULL, -- names the order of a refund
    created_at   timestamptz NOT NULL,
    finished_at  timestamptz NOT NULL,
    lost         boolean     NOT NULL DEFAULT false, -- an operator expired it because its order is lost, so no response names the order

    PRIMARY KEY (account_id, id)
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.05, -- the table only grows
    autovacuum_freeze_min_age = 0 -- later vacuums write nothing
);

-- A claim or a fence that matches no row must fail, because the COMMIT behind it is already
-- sent. Both errors have names, which the server's log shows. Citus accepts no volatile function
-- there.
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
