-- +goose Up
-- varchar and not a domain: a column whose type has a CHECK is added by writing
-- the table anew.
ALTER TABLE idempotency_keys ADD COLUMN traceparent varchar(55);
COMMENT ON COLUMN idempotency_keys.traceparent IS 'The span of the first run (W3C Trace Context), for later runs to link to; NULL when nobody recorded it.';

-- +goose Down
ALTER TABLE idempotency_keys DROP COLUMN traceparent;
