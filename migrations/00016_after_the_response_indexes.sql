-- +goose NO TRANSACTION
-- +goose Up
-- These statements block nobody, and wait for each transaction that is older, such as that of pg_dump.
SET lock_timeout = 0;

-- Orders are found by their intent alone, so the intent comes first. A killed build leaves an invalid
-- index that IF NOT EXISTS would keep, so each name is dropped before.
DROP INDEX CONCURRENTLY IF EXISTS orders_intent_unique;
CREATE UNIQUE INDEX CONCURRENTLY orders_intent_unique ON orders (payment_intent_id, account_id)
    WHERE payment_intent_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS orders_payment_intent_id_unique;

DROP INDEX CONCURRENTLY IF EXISTS orders_disputed_idx;
CREATE INDEX CONCURRENTLY orders_disputed_idx ON orders (account_id) WHERE disputes IS NOT NULL;

DROP INDEX CONCURRENTLY IF EXISTS staged_jobs_events_idx;
CREATE INDEX CONCURRENTLY staged_jobs_events_idx ON staged_jobs (account_id, run_at)
    WHERE kind = 'event' AND failed_at IS NULL;

ALTER TABLE refunds VALIDATE CONSTRAINT source_is_known;
ALTER TABLE refunds VALIDATE CONSTRAINT provider_has_no_key;
RESET lock_timeout;

-- +goose Down
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS orders_payment_intent_id_unique;
CREATE UNIQUE INDEX CONCURRENTLY orders_payment_intent_id_unique ON orders (account_id, payment_intent_id)
    WHERE payment_intent_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS orders_intent_unique;
DROP INDEX CONCURRENTLY IF EXISTS orders_disputed_idx;
DROP INDEX CONCURRENTLY IF EXISTS staged_jobs_events_idx;
RESET lock_timeout;
