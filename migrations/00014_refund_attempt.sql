-- +goose Up
-- Stripe replays a refusal under its key, so a refused refund is sent again under the next key
-- (R12). provider_sent_at is when the last call that may have been executed was sent, and NULL if
-- there is none. Its default is for rows and programs from before.
ALTER TABLE refunds
    ADD COLUMN provider_attempt integer NOT NULL DEFAULT 1,
    ADD COLUMN provider_sent_at timestamptz DEFAULT now();

-- +goose Down
ALTER TABLE refunds
    DROP COLUMN provider_attempt,
    DROP COLUMN provider_sent_at;
