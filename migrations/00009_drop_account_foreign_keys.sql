-- +goose Up
-- Both foreign keys made each order lock its account's row, which all clients of a shop share.
-- The id of an account comes from one of its API keys, whose foreign key remains.
ALTER TABLE idempotency_keys DROP CONSTRAINT idempotency_keys_account_id_fkey;
ALTER TABLE orders DROP CONSTRAINT orders_account_id_fkey;

-- +goose Down
ALTER TABLE orders ADD CONSTRAINT orders_account_id_fkey FOREIGN KEY (account_id) REFERENCES accounts (id);
ALTER TABLE idempotency_keys ADD CONSTRAINT idempotency_keys_account_id_fkey FOREIGN KEY (account_id) REFERENCES accounts (id);
