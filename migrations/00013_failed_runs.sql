-- +goose Up
-- For operators: a run without a final outcome leaves its error, see release in the engine.
ALTER TABLE idempotency_keys ADD COLUMN failed_runs jsonb;

-- +goose Down
ALTER TABLE idempotency_keys DROP COLUMN failed_runs;
