-- +goose Up
ALTER TABLE idempotency_keys
    ADD COLUMN completer_attempt integer NOT NULL DEFAULT 0 CHECK (completer_attempt >= 0);
COMMENT ON COLUMN idempotency_keys.completer_attempt IS 'Runs by the completer, which space out and end by it. Not attempt: a client that retries often must not use them up.';

-- What needs review has left the index above, and is rare.
CREATE INDEX idempotency_keys_needs_review ON idempotency_keys (needs_review_at)
    WHERE recovery_point <> 'finished' AND needs_review_at IS NOT NULL;

-- +goose Down
DROP INDEX idempotency_keys_needs_review;
ALTER TABLE idempotency_keys DROP COLUMN completer_attempt;
