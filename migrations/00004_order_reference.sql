-- +goose Up
-- The client's own name of the purchase (R26). No domain, because adding a column of one
-- would rewrite the table.
ALTER TABLE orders ADD COLUMN reference varchar(64);

-- +goose Down
ALTER TABLE orders DROP COLUMN reference;
