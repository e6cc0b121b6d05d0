-- +goose NO TRANSACTION
-- +goose Up
-- Built without a lock on the table; after a failure, it can be repeated.

-- Of a purchase, at most one order has not failed (R26); the id tells failed ones apart. The
-- index also serves lists. failed_has_reason ties failure_code to the status, whose change
-- alone stays a HOT update.
DROP INDEX CONCURRENTLY IF EXISTS orders_reference_unique;
CREATE UNIQUE INDEX CONCURRENTLY orders_reference_unique
    ON orders (account_id, reference, (CASE WHEN failure_code IS NOT NULL THEN id END)) NULLS NOT DISTINCT
    WHERE reference IS NOT NULL;

-- +goose Down
DROP INDEX orders_reference_unique;
