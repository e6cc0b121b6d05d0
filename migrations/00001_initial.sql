-- +goose Up
CREATE TABLE accounts (
    id         uuid        PRIMARY KEY, -- random: other ids derive from it, and must differ between databases (R5, derived ids)
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

    -- account_id is in every unique constraint, so that accounts can move to another schema or server
    -- (R20, the account in every table).
    CONSTRAINT api_keys_key_hash_unique UNIQUE (key_hash, account_id)
);

-- The engine: package idempotency needs only what follows, up to the orders.

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
CREATE DOMAIN positive AS integer CHECK (VALUE >= 1);
CREATE DOMAIN nonnegative AS integer CHECK (VALUE >= 0);

-- +goose StatementBegin
CREATE FUNCTION idempotency_key_is_consistent(
    idempotency_key idempotency_key, request_method http_method, request_params bytea, fingerprint fingerprint,
    recovery_point name64, locked_at timestamptz, action_required_at timestamptz, finished_at timestamptz, expired_at timestamptz,
    response_code response_code, response_headers jsonb, response_body bytea
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN (recovery_point = 'finished') = (finished_at IS NOT NULL)
       AND num_nonnulls(finished_at, locked_at, action_required_at) < 2
       -- A finished key has a response, until it is emptied.
       AND num_nonnulls(response_code, response_headers, response_body)
           = CASE WHEN finished_at IS NOT NULL AND expired_at IS NULL THEN 3 ELSE 0 END
       AND num_nonnulls(idempotency_key, request_method, request_params, fingerprint)
           = CASE WHEN expired_at IS NULL THEN 4 ELSE 0 END
       AND (expired_at IS NULL OR finished_at IS NOT NULL);
END
$$;
-- +goose StatementEnd

-- There is no foreign key to accounts, because each claim would lock the account's row, and all clients
-- of a shop share it. account_id comes from an API key, whose own foreign key guarantees the account.
CREATE TABLE idempotency_keys (
    account_id         uuid            NOT NULL,
    id                 uuid            NOT NULL, -- derived from account and key (R5, derived ids)
    idempotency_key    idempotency_key COLLATE "C", -- NULL, like the request and the response, once the key has expired
    operation          name64          NOT NULL,
    request_method     http_method,
    request_path       http_path       NOT NULL, -- for a refund, it contains the order's id
    request_params     bytea,                    -- canonical JSON, from which runs resume
    fingerprint        fingerprint,
    recovery_point     name64          NOT NULL,
    lease_token        uuid            NOT NULL, -- required by each write of the run (R7, fence)
    locked_at          timestamptz,              -- start of the lease
    runs               positive        NOT NULL, -- after a restore it can repeat, so lease_token fences writes
    updated_at         timestamptz     NOT NULL,
    last_error         error_message,
    action_required_at timestamptz,              -- set if the last run ended because the customer must act
    created_at         timestamptz     NOT NULL,
    finished_at        timestamptz,
    expired_at         timestamptz,              -- the row was emptied, and stays so that the key never executes again (R17, used for ever)
    lost               boolean         NOT NULL DEFAULT false, -- an operator expired a key whose rows were lost, so responses name no order
    response_code      response_code,
    response_headers   jsonb,
    response_body      bytea,                    -- not jsonb, which reorders members and rejects \u0000 (R14, the same bytes)

    CONSTRAINT key_is_consistent CHECK (idempotency_key_is_consistent(
        idempotency_key, request_method, request_params, fingerprint, recovery_point, locked_at, action_required_at,
        finished_at, expired_at, response_code, response_headers, response_body
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
CREATE UNIQUE INDEX idempotency_keys_idempotency_key_unique ON idempotency_keys (account_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL; -- expired keys, which may be most, take no space here

-- The predicates do not contain recovery_point, because each step changes it, and an update of a column
-- in an index or its predicate is not a HOT update.
CREATE INDEX idempotency_keys_unfinished_idx ON idempotency_keys (updated_at) -- completer
    WHERE finished_at IS NULL;
CREATE INDEX idempotency_keys_finished_idx ON idempotency_keys (finished_at) -- reaper
    WHERE finished_at IS NOT NULL AND expired_at IS NULL;
CREATE INDEX idempotency_keys_below_idx ON idempotency_keys (account_id, request_path COLLATE "C") -- erase
    WHERE request_path LIKE '/v1/%/%/%'; -- requests below a resource, such as refunds, and not orders

-- The primary key is created last, because a planner without statistics chooses the newest of several
-- equally good indexes.
ALTER TABLE idempotency_keys ADD PRIMARY KEY (account_id, id);

-- If a claim or a fence matches no row, its statement must fail, because the COMMIT that follows it is
-- already sent. The error begins with a name, which an operator finds in the server's log.
-- +goose StatementBegin
CREATE FUNCTION idempotency_assert(ok boolean, condition text) RETURNS boolean
    LANGUAGE plpgsql PARALLEL SAFE
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

-- The orders.

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
    account_id          uuid           NOT NULL,
    id                  uuid           NOT NULL, -- derived from account and key (R5, derived ids)
    idempotency_key     text           NOT NULL,
    reference           varchar(64)    COLLATE "C", -- the client's own name for the purchase
    email               email_address, -- NULL after an erasure
    currency            currency       NOT NULL,
    amount              amount         NOT NULL,
    amount_refunded     bigint         NOT NULL DEFAULT 0,
    items               jsonb          NOT NULL, -- no domain, because pgx cannot encode JSON for one
    metadata            json           NOT NULL, -- not jsonb, which rejects \u0000
    payment_method      external_id    NOT NULL,
    off_session         boolean        NOT NULL DEFAULT false, -- the customer is absent, and cannot approve the payment
    status              order_status   NOT NULL,
    payment_intent_id   external_id    COLLATE "C", -- committed before the confirm
    create_key_number      positive NOT NULL DEFAULT 1, -- part of the provider's key, because Stripe replays a 500 under the same key
    confirm_key_number     positive NOT NULL DEFAULT 1,
    created_at          timestamptz    NOT NULL,
    paid_at             timestamptz,
    failure_code        text,
    decline_code        text,
    cancel_requested_at timestamptz,   -- every later run closes the order (R29, durable cancel)
    cancel_requested_by text,          -- the operator, unless only the client has requested it
    erased_at           timestamptz,
    disputes            jsonb,         -- as the provider lists them; NULL if it never listed one
    provider_read_at    timestamptz,   -- when the last applied read of its refunds and disputes began

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

-- No intent pays for two orders. An event names only the intent, so the intent comes first.
CREATE UNIQUE INDEX orders_intent_unique ON orders (payment_intent_id, account_id)
    WHERE payment_intent_id IS NOT NULL;

CREATE INDEX orders_disputed_idx ON orders (account_id) WHERE disputes IS NOT NULL;

-- At most one order of a reference has not failed (R26, one order per reference). Failed orders also
-- have their id in the index, so any number of them may have the same reference. The index reads
-- failure_code, which only failed orders have, and not the status, so that an update of the status alone
-- stays a HOT update. Lists by reference use the index, too.
CREATE UNIQUE INDEX orders_reference_unique
    ON orders (account_id, reference, (CASE WHEN failure_code IS NOT NULL THEN id END)) NULLS NOT DISTINCT
    WHERE reference IS NOT NULL;

ALTER TABLE orders ADD PRIMARY KEY (account_id, id);

CREATE DOMAIN refund_status AS text
    CHECK (VALUE IN ('pending', 'requires_action', 'succeeded', 'failed', 'canceled'));
CREATE DOMAIN refund_reason AS text
    CHECK (VALUE IN ('duplicate', 'fraudulent', 'requested_by_customer'));

-- A refund reserves its amount unless it failed or was canceled.
CREATE TABLE refunds (
    account_id         uuid          NOT NULL REFERENCES accounts (id),
    id                 uuid          NOT NULL, -- derived from account and key (R5, derived ids)
    order_id           uuid          NOT NULL,
    idempotency_key    text,         -- NULL if it was made at the provider's dashboard, or the row was lost
    amount             amount        NOT NULL,
    currency           currency      NOT NULL,
    reason             refund_reason,
    status             refund_status NOT NULL,
    provider_refund_id external_id   COLLATE "C", -- until it is set, orders.amount_refunded does not include the refund
    failure_reason     external_id,
    -- Part of the provider's key. Stripe replays a refusal under the same key, so a refused refund is
    -- sent again under the next one.
    provider_key_number   integer       NOT NULL DEFAULT 1,
    -- The time of the last call that Stripe may have executed; NULL if there is none. The default counts
    -- a row as sent unless its INSERT says otherwise, because that is the safe assumption.
    provider_sent_at   timestamptz   DEFAULT now(),
    provider_failed_at timestamptz,  -- the time of a 500, which the provider replays for a day
    created_at         timestamptz   NOT NULL,
    source             text          NOT NULL DEFAULT 'api',
    cancel_requested_at timestamptz, -- every later run ends the refund, unless the provider has it (R29, durable cancel)
    cancel_requested_by text,        -- the operator

    FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id),

    CONSTRAINT status_requires_provider_refund_id CHECK (provider_refund_id IS NOT NULL OR status IN ('pending', 'failed')),

    CONSTRAINT failure_reason_requires_failure CHECK (failure_reason IS NULL OR status IN ('failed', 'canceled')),

    CONSTRAINT source_is_known CHECK (source IN ('api', 'provider')),

    CONSTRAINT provider_has_no_key CHECK (source = 'api' OR idempotency_key IS NULL)
);

CREATE INDEX refunds_account_id_order_id_created_at_idx ON refunds (account_id, order_id, created_at, id);

CREATE INDEX refunds_account_id_created_at_idx ON refunds (account_id, created_at, id);

CREATE UNIQUE INDEX refunds_provider_refund_id_unique ON refunds (account_id, provider_refund_id)
    WHERE provider_refund_id IS NOT NULL;

CREATE INDEX refunds_open_idx ON refunds (created_at) WHERE status IN ('pending', 'requires_action');

ALTER TABLE refunds ADD PRIMARY KEY (account_id, id);

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
    account_id      uuid          NOT NULL, -- of a discrepancy, the zero UUID if it concerns none
    id              uuid          NOT NULL,
    kind            name64        NOT NULL COLLATE "C",
    args            jsonb         NOT NULL,
    run_at          timestamptz   NOT NULL DEFAULT now(), -- a worker that claims the job moves it forward, so it is also the lease
    attempt         nonnegative NOT NULL DEFAULT 0, -- incremented by each claim, so it is also the worker's fence
    last_error      error_message, -- of a discrepancy, what was found
    failed_at       timestamptz,
    acknowledged_at timestamptz, -- a discrepancy with which an operator has dealt
    created_at      timestamptz   NOT NULL DEFAULT now(),

    PRIMARY KEY (account_id, id),
    -- Only an operator can deal with a difference from the provider, so no worker may claim it.
    CONSTRAINT discrepancy_is_failed CHECK (kind <> 'discrepancy' OR failed_at IS NOT NULL)
) WITH (
    autovacuum_vacuum_scale_factor = 0, -- a queue's dead rows do not depend on its size, so only the threshold counts
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX staged_jobs_pending_idx ON staged_jobs (kind, run_at) WHERE failed_at IS NULL;
CREATE INDEX staged_jobs_failed_idx ON staged_jobs (kind, failed_at) WHERE failed_at IS NOT NULL;

-- The provider's events by id, so that each is handled once. No account_id (R20's exception): an event
-- names an intent, and the index of the orders decides whose it is.
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

-- +goose Down
DROP TABLE provider_event_place, provider_events, refunds, staged_jobs, audit_records, orders,
    idempotency_keys, api_keys, accounts;
DROP FUNCTION order_is_consistent, idempotency_assert, idempotency_key_is_consistent;
DROP DOMAIN refund_status, refund_reason, email_address, currency, amount, external_id, order_status,
    idempotency_key, name64, http_method, http_path, fingerprint, response_code, error_message, positive, nonnegative;
