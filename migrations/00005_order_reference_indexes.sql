-- +goose NO TRANSACTION
-- +goose Up
-- Built without a lock on the table; after a failure, it can be repeated.

-- Of a purchase, at most one order has not failed (R26). failed_has_reason ties failure_code
-- to the status, whose change alone stays a HOT update.
DROP INDEX CONCURRENTLY IF EXISTS orders_reference_unique;
CREATE UNIQUE INDEX CONCURRENTLY orders_reference_unique ON orders (account_id, reference)
    WHERE reference IS NOT NULL AND failure_code IS NULL;

-- For lists, which include failed orders.
DROP INDEX CONCURRENTLY IF EXISTS orders_account_id_reference_created_at_idx;
CREATE INDEX CONCURRENTLY orders_account_id_reference_created_at_idx ON orders (account_id, reference, created_at, id)
    WHERE reference IS NOT NULL;

-- +goose Down
DROP INDEX orders_account_id_reference_created_at_idx;
DROP INDEX orders_reference_unique;
