-- +goose Up
-- PostgreSQL reads every CHECK of a table anew, from its text, in each statement
-- that inserts or updates, whichever columns that names: four times an order the
-- eleven of a key. This was more than a quarter of what an order cost. A
-- domain is checked where a value is assigned, and only there. What is about one
-- column is a domain now, in the tables that every order writes; what ties columns
-- together is still a CHECK. Anything that was refused still is.
--
-- This writes the tables anew and locks them meanwhile.

-- Not one expression with {16,255}: that takes forty times as long.
CREATE DOMAIN client_key AS text CHECK (char_length(VALUE) BETWEEN 16 AND 255 AND VALUE !~ '[^\x21-\x7e]');
CREATE DOMAIN short_name AS text CHECK (char_length(VALUE) BETWEEN 1 AND 64);
CREATE DOMAIN reference AS text CHECK (char_length(VALUE) BETWEEN 1 AND 255);
CREATE DOMAIN http_method AS text CHECK (char_length(VALUE) BETWEEN 1 AND 16);
CREATE DOMAIN http_path AS text CHECK (char_length(VALUE) BETWEEN 1 AND 512);
CREATE DOMAIN stored_status AS integer CHECK (VALUE BETWEEN 200 AND 499);
CREATE DOMAIN fingerprint AS bytea CHECK (octet_length(VALUE) = 33);
CREATE DOMAIN error_text AS text CHECK (char_length(VALUE) <= 500);
CREATE DOMAIN email_address AS text CHECK (char_length(VALUE) BETWEEN 3 AND 254);
CREATE DOMAIN currency AS text CHECK (VALUE ~ '^[a-z]{3}$');
CREATE DOMAIN price AS bigint CHECK (VALUE > 0);
CREATE DOMAIN order_status AS text
    CHECK (VALUE IN ('pending', 'paid', 'payment_failed', 'partially_refunded', 'refunded'));
CREATE DOMAIN counter AS integer CHECK (VALUE >= 0);
CREATE DOMAIN attempt_number AS integer CHECK (VALUE >= 1);
COMMENT ON DOMAIN client_key IS 'An Idempotency-Key: 16 to 255 visible ASCII characters.';
COMMENT ON DOMAIN fingerprint IS 'Version byte + SHA-256 (R3).';
COMMENT ON DOMAIN stored_status IS 'Only final outcomes are stored (R11).';

ALTER TABLE idempotency_keys
    DROP CONSTRAINT idempotency_keys_idempotency_key_check,
    DROP CONSTRAINT idempotency_keys_operation_check,
    DROP CONSTRAINT idempotency_keys_request_method_check,
    DROP CONSTRAINT idempotency_keys_request_path_check,
    DROP CONSTRAINT idempotency_keys_params_hash_check,
    DROP CONSTRAINT idempotency_keys_recovery_point_check,
    DROP CONSTRAINT idempotency_keys_attempt_check,
    DROP CONSTRAINT idempotency_keys_completer_attempt_check,
    DROP CONSTRAINT idempotency_keys_last_error_check,
    DROP CONSTRAINT idempotency_keys_response_code_check,
    DROP CONSTRAINT finished_has_response,
    ALTER COLUMN idempotency_key   TYPE client_key,
    ALTER COLUMN operation         TYPE short_name,
    ALTER COLUMN request_method    TYPE http_method,
    ALTER COLUMN request_path      TYPE http_path,
    ALTER COLUMN params_hash       TYPE fingerprint,
    ALTER COLUMN recovery_point    TYPE short_name,
    ALTER COLUMN attempt           TYPE attempt_number,
    ALTER COLUMN completer_attempt TYPE counter,
    ALTER COLUMN last_error        TYPE error_text,
    ALTER COLUMN response_code     TYPE stored_status,
    -- As before, in fewer words.
    ADD CONSTRAINT finished_has_response CHECK (
        (recovery_point = 'finished') = (finished_at IS NOT NULL)
        AND num_nonnulls(finished_at, response_code, response_headers, response_body) IN (0, 4)
        AND num_nonnulls(finished_at, locked_at) < 2
    );

ALTER TABLE orders
    DROP CONSTRAINT orders_email_check,
    DROP CONSTRAINT orders_currency_check,
    DROP CONSTRAINT orders_amount_check,
    DROP CONSTRAINT orders_payment_method_check,
    DROP CONSTRAINT orders_status_check,
    DROP CONSTRAINT orders_payment_intent_id_check,
    DROP CONSTRAINT orders_create_attempt_check,
    DROP CONSTRAINT orders_confirm_attempt_check,
    ALTER COLUMN email             TYPE email_address,
    ALTER COLUMN currency          TYPE currency,
    ALTER COLUMN amount            TYPE price,
    ALTER COLUMN payment_method    TYPE reference,
    ALTER COLUMN status            TYPE order_status,
    ALTER COLUMN payment_intent_id TYPE reference,
    ALTER COLUMN create_attempt    TYPE attempt_number,
    ALTER COLUMN confirm_attempt   TYPE attempt_number;

ALTER TABLE audit_records
    DROP CONSTRAINT audit_records_action_check,
    DROP CONSTRAINT audit_records_resource_type_check,
    DROP CONSTRAINT audit_records_resource_id_check,
    ALTER COLUMN action        TYPE short_name,
    ALTER COLUMN resource_type TYPE short_name,
    ALTER COLUMN resource_id   TYPE reference;

ALTER TABLE staged_jobs
    DROP CONSTRAINT staged_jobs_kind_check,
    DROP CONSTRAINT staged_jobs_attempt_check,
    DROP CONSTRAINT staged_jobs_last_error_check,
    ALTER COLUMN kind       TYPE short_name,
    ALTER COLUMN attempt    TYPE counter,
    ALTER COLUMN last_error TYPE error_text;

-- +goose Down
ALTER TABLE staged_jobs
    ALTER COLUMN kind       TYPE text,
    ALTER COLUMN attempt    TYPE integer,
    ALTER COLUMN last_error TYPE text,
    ADD CONSTRAINT staged_jobs_kind_check CHECK (char_length(kind) BETWEEN 1 AND 64),
    ADD CONSTRAINT staged_jobs_attempt_check CHECK (attempt >= 0),
    ADD CONSTRAINT staged_jobs_last_error_check CHECK (char_length(last_error) <= 500);

ALTER TABLE audit_records
    ALTER COLUMN action        TYPE text,
    ALTER COLUMN resource_type TYPE text,
    ALTER COLUMN resource_id   TYPE text,
    ADD CONSTRAINT audit_records_action_check CHECK (char_length(action) BETWEEN 1 AND 64),
    ADD CONSTRAINT audit_records_resource_type_check CHECK (char_length(resource_type) BETWEEN 1 AND 64),
    ADD CONSTRAINT audit_records_resource_id_check CHECK (char_length(resource_id) BETWEEN 1 AND 255);

ALTER TABLE orders
    ALTER COLUMN email             TYPE text,
    ALTER COLUMN currency          TYPE text,
    ALTER COLUMN amount            TYPE bigint,
    ALTER COLUMN payment_method    TYPE text,
    ALTER COLUMN status            TYPE text,
    ALTER COLUMN payment_intent_id TYPE text,
    ALTER COLUMN create_attempt    TYPE smallint,
    ALTER COLUMN confirm_attempt   TYPE smallint,
    ADD CONSTRAINT orders_email_check CHECK (char_length(email) BETWEEN 3 AND 254),
    ADD CONSTRAINT orders_currency_check CHECK (currency ~ '^[a-z]{3}$'),
    ADD CONSTRAINT orders_amount_check CHECK (amount > 0),
    ADD CONSTRAINT orders_payment_method_check CHECK (char_length(payment_method) BETWEEN 1 AND 255),
    ADD CONSTRAINT orders_status_check
        CHECK (status IN ('pending', 'paid', 'payment_failed', 'partially_refunded', 'refunded')),
    ADD CONSTRAINT orders_payment_intent_id_check CHECK (char_length(payment_intent_id) BETWEEN 1 AND 255),
    ADD CONSTRAINT orders_create_attempt_check CHECK (create_attempt >= 1),
    ADD CONSTRAINT orders_confirm_attempt_check CHECK (confirm_attempt >= 1);

ALTER TABLE idempotency_keys
    DROP CONSTRAINT finished_has_response,
    ALTER COLUMN idempotency_key   TYPE text,
    ALTER COLUMN operation         TYPE text,
    ALTER COLUMN request_method    TYPE text,
    ALTER COLUMN request_path      TYPE text,
    ALTER COLUMN params_hash       TYPE bytea,
    ALTER COLUMN recovery_point    TYPE text,
    ALTER COLUMN attempt           TYPE integer,
    ALTER COLUMN completer_attempt TYPE integer,
    ALTER COLUMN last_error        TYPE text,
    ALTER COLUMN response_code     TYPE integer,
    ADD CONSTRAINT idempotency_keys_idempotency_key_check CHECK (idempotency_key ~ '^[\x21-\x7e]{16,255}$'),
    ADD CONSTRAINT idempotency_keys_operation_check CHECK (char_length(operation) BETWEEN 1 AND 64),
    ADD CONSTRAINT idempotency_keys_request_method_check CHECK (char_length(request_method) BETWEEN 1 AND 16),
    ADD CONSTRAINT idempotency_keys_request_path_check CHECK (char_length(request_path) BETWEEN 1 AND 512),
    ADD CONSTRAINT idempotency_keys_params_hash_check CHECK (octet_length(params_hash) = 33),
    ADD CONSTRAINT idempotency_keys_recovery_point_check CHECK (char_length(recovery_point) BETWEEN 1 AND 64),
    ADD CONSTRAINT idempotency_keys_attempt_check CHECK (attempt >= 1),
    ADD CONSTRAINT idempotency_keys_completer_attempt_check CHECK (completer_attempt >= 0),
    ADD CONSTRAINT idempotency_keys_last_error_check CHECK (char_length(last_error) <= 500),
    ADD CONSTRAINT idempotency_keys_response_code_check CHECK (response_code BETWEEN 200 AND 499),
    ADD CONSTRAINT finished_has_response CHECK (
        (recovery_point = 'finished')
            = (finished_at IS NOT NULL AND response_code IS NOT NULL AND response_headers IS NOT NULL AND response_body IS NOT NULL)
        AND (recovery_point = 'finished' OR num_nonnulls(finished_at, response_code, response_headers, response_body) = 0)
        AND (recovery_point <> 'finished' OR locked_at IS NULL)
    );

DROP DOMAIN client_key, short_name, reference, http_method, http_path, stored_status, fingerprint, error_text,
    email_address, currency, price, order_status, counter, attempt_number;
