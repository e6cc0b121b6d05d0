-- +goose Up
-- The form shows it again after a decline, when the request is gone.
ALTER TABLE shop.purchases ADD email text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE shop.purchases DROP email;
