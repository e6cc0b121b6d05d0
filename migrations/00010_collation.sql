-- +goose NO TRANSACTION
-- +goose Up
-- Indexed texts get the collation C. An upgrade of the C library or ICU can change the order of the
-- database's own collation, and then lookups and unique indexes miss rows. No table is rewritten,
-- each unique index holds at every moment, and after a failure this file can be repeated.

-- A column's new collation rebuilds its indexes under a lock, except those that have the collation
-- already and are not partial.
DROP INDEX CONCURRENTLY IF EXISTS collation_c;
CREATE UNIQUE INDEX CONCURRENTLY collation_c ON idempotency_keys (account_id, idempotency_key COLLATE "C");
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE idempotency_keys DROP CONSTRAINT IF EXISTS idempotency_keys_idempotency_key_unique;
    DROP INDEX IF EXISTS idempotency_keys_idempotency_key_unique;
    ALTER TABLE idempotency_keys ALTER idempotency_key TYPE idempotency_key COLLATE "C";
    ALTER INDEX collation_c RENAME TO idempotency_keys_idempotency_key_unique;
END
$$;
-- +goose StatementEnd
-- Without statistics, of equal indexes the planner takes the newest: the primary key, as in 00001.
REINDEX INDEX CONCURRENTLY idempotency_keys_pkey;

-- Orders. The index of references is rebuilt: it is as new as this file, so it has few entries.
CREATE UNIQUE INDEX CONCURRENTLY collation_c ON orders (account_id, payment_intent_id COLLATE "C");
-- +goose StatementBegin
DO $$
BEGIN
    DROP INDEX orders_payment_intent_id_unique;
    ALTER INDEX collation_c RENAME TO orders_payment_intent_id_unique;
    ALTER TABLE orders DROP CONSTRAINT order_is_consistent; -- or it would be checked under the lock
    ALTER TABLE orders
        ALTER payment_intent_id TYPE external_id COLLATE "C",
        ALTER reference TYPE varchar(64) COLLATE "C";
    ALTER TABLE orders ADD CONSTRAINT order_is_consistent CHECK (order_is_consistent(
        status, amount, amount_refunded, items, payment_intent_id, paid_at, failure_code, decline_code
    )) NOT VALID;
END
$$;
-- +goose StatementEnd
CREATE UNIQUE INDEX CONCURRENTLY collation_c ON orders (account_id, payment_intent_id) WHERE payment_intent_id IS NOT NULL;
-- +goose StatementBegin
DO $$
BEGIN
    DROP INDEX orders_payment_intent_id_unique;
    ALTER INDEX collation_c RENAME TO orders_payment_intent_id_unique;
END
$$;
-- +goose StatementEnd
ALTER TABLE orders VALIDATE CONSTRAINT order_is_consistent;
REINDEX INDEX CONCURRENTLY orders_pkey;

-- Only operators search the audit records. The other tables are small.
DROP INDEX CONCURRENTLY IF EXISTS audit_records_account_id_resource_id_idx;
ALTER TABLE audit_records ALTER resource_id TYPE external_id COLLATE "C";
CREATE INDEX CONCURRENTLY audit_records_account_id_resource_id_idx ON audit_records (account_id, resource_id);
ALTER TABLE refunds ALTER provider_refund_id TYPE external_id COLLATE "C";
ALTER TABLE staged_jobs ALTER kind TYPE name64 COLLATE "C";

-- +goose Down
SELECT 'Nothing is rolled back, because every version of the program works with both collations.';
