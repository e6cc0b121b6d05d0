-- +goose Up
-- After a decline the request is deleted, and the form shows this email address again.
ALTER TABLE shop.purchases ADD email text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE shop.purchases DROP email;
