-- What an order costs the database, and that it does not grow with the store:
-- docs/bench/store.md has the figures.

-- +goose Up
-- A row can be updated in place of its page, without a new entry in every index
-- (HOT), unless a column that an index names has changed, its predicate included.
-- recovery_point changes with every phase. finished_at changes once, and the CHECK
-- finished_has_response makes both say the same.
DROP INDEX idempotency_keys_unfinished;
CREATE INDEX idempotency_keys_unfinished ON idempotency_keys (last_run_at)
    WHERE finished_at IS NULL AND needs_review_at IS NULL;
DROP INDEX idempotency_keys_finished;
CREATE INDEX idempotency_keys_finished ON idempotency_keys (finished_at)
    WHERE finished_at IS NOT NULL;
DROP INDEX idempotency_keys_needs_review;
CREATE INDEX idempotency_keys_needs_review ON idempotency_keys (needs_review_at)
    WHERE finished_at IS NULL AND needs_review_at IS NOT NULL;

-- The new version must fit the page of the old one. A tenth is enough, because a
-- page that is nearly full is cleared of old versions by whoever reads it next;
-- more only made the table bigger.
ALTER TABLE idempotency_keys SET (fillfactor = 90);
ALTER TABLE orders SET (fillfactor = 90);

-- An order begins without an intent, and no entry says so any more.
ALTER TABLE orders DROP CONSTRAINT orders_payment_intent_id_key;
CREATE UNIQUE INDEX orders_payment_intent_id_key ON orders (payment_intent_id)
    WHERE payment_intent_id IS NOT NULL;

-- Orders stay for good and their keys three days: only those with a key are in
-- this index, for the reaper's ON DELETE SET NULL.
DROP INDEX orders_idempotency_key_id;
CREATE INDEX orders_idempotency_key_id ON orders (account_id, idempotency_key_id)
    WHERE idempotency_key_id IS NOT NULL;

-- Read backwards it is the same list. Where entries come in ascending order
-- PostgreSQL fills its pages, else it leaves them half empty.
DROP INDEX orders_newest;
CREATE INDEX orders_newest ON orders (account_id, created_at, id);

-- Three records an order: equal entries share one place, where the time in each
-- of them made three of it, and whoever reads them sorts a handful.
DROP INDEX audit_records_resource;
CREATE INDEX audit_records_resource ON audit_records (account_id, resource_id);

-- Each row of these took a lock on its account's row, the same one for all orders
-- of that account. It is written in the transaction that writes a key, an order or
-- a refund of the account, or copied from one, and those reference it.
ALTER TABLE audit_records DROP CONSTRAINT audit_records_account_id_fkey;
ALTER TABLE staged_jobs DROP CONSTRAINT staged_jobs_account_id_fkey;

-- Autovacuum waits for a fifth of a table to change, which is two million rows
-- when there are ten.
--
-- Each order leaves two dead rows here, one when it finishes and one when it is
-- reaped. With 10 million keys in three days, a fiftieth is 40 minutes of traffic.
ALTER TABLE idempotency_keys SET (
    autovacuum_vacuum_scale_factor  = 0.02,
    autovacuum_vacuum_threshold     = 1000,
    autovacuum_analyze_scale_factor = 0.02
);
-- Only grows, so a share of it would come ever less often: a hundredth.
ALTER TABLE orders SET (
    autovacuum_vacuum_scale_factor        = 0.01,
    autovacuum_vacuum_threshold           = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor       = 0.02
);
-- Never updated: frozen by the first vacuum that passes, its pages are not
-- written a third time.
ALTER TABLE audit_records SET (
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_freeze_min_age             = 0
);
-- A queue: small, and all of it replaced again and again. Its size says nothing
-- about how much is dead, and a vacuum of it is done in no time.
ALTER TABLE staged_jobs SET (
    autovacuum_vacuum_scale_factor  = 0,
    autovacuum_vacuum_threshold     = 1000,
    autovacuum_vacuum_cost_delay    = 0
);

-- +goose Down
ALTER TABLE staged_jobs RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay);
ALTER TABLE audit_records RESET (autovacuum_vacuum_insert_scale_factor, autovacuum_freeze_min_age);
ALTER TABLE orders RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE idempotency_keys RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_analyze_scale_factor);
ALTER TABLE staged_jobs ADD FOREIGN KEY (account_id) REFERENCES accounts (id);
ALTER TABLE audit_records ADD FOREIGN KEY (account_id) REFERENCES accounts (id);
DROP INDEX audit_records_resource;
CREATE INDEX audit_records_resource ON audit_records (account_id, resource_type, resource_id, created_at);
DROP INDEX orders_newest;
CREATE INDEX orders_newest ON orders (account_id, created_at DESC, id DESC);
DROP INDEX orders_idempotency_key_id;
CREATE INDEX orders_idempotency_key_id ON orders (account_id, idempotency_key_id);
DROP INDEX orders_payment_intent_id_key;
ALTER TABLE orders ADD UNIQUE (payment_intent_id);
DROP INDEX idempotency_keys_needs_review;
CREATE INDEX idempotency_keys_needs_review ON idempotency_keys (needs_review_at)
    WHERE recovery_point <> 'finished' AND needs_review_at IS NOT NULL;
DROP INDEX idempotency_keys_finished;
CREATE INDEX idempotency_keys_finished ON idempotency_keys (finished_at)
    WHERE recovery_point = 'finished';
DROP INDEX idempotency_keys_unfinished;
CREATE INDEX idempotency_keys_unfinished ON idempotency_keys (last_run_at)
    WHERE recovery_point <> 'finished' AND needs_review_at IS NULL;
