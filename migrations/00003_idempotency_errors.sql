-- +goose Up
-- The engine's errors, so that the server's log names them.

-- +goose StatementBegin
-- A claim or a fence that matches no row must fail, because the COMMIT behind it is already
-- sent. Citus accepts no volatile function there.
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
DROP FUNCTION idempotency_assert;
