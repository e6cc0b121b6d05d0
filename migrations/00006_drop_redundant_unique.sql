-- +goose Up
-- The id derives from account and key (R5), so the primary key permits one order and one
-- refund of a key, also after the key was reaped (R17). A second index cost each order two
-- entries.
ALTER TABLE orders DROP CONSTRAINT orders_idempotency_key_unique;
ALTER TABLE refunds DROP CONSTRAINT refunds_idempotency_key_unique;

-- +goose Down
ALTER TABLE refunds ADD CONSTRAINT refunds_idempotency_key_unique UNIQUE (account_id, idempotency_key);
ALTER TABLE orders ADD CONSTRAINT orders_idempotency_key_unique UNIQUE (account_id, idempotency_key);
