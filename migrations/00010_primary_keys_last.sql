-- +goose Up
-- While a table is small and nobody has analysed it, every index that begins with
-- account_id looks as good to the planner as the primary key, and of equals it
-- takes the one that was made last. A session keeps such a plan until the table is
-- analysed, which on a new and busy database is a minute: by then it read all the
-- rows of the account, for every statement. So the primary keys are made last.
ALTER TABLE refunds
    DROP CONSTRAINT refunds_account_id_idempotency_key_id_fkey,
    DROP CONSTRAINT refunds_account_id_order_id_fkey;
ALTER TABLE orders
    DROP CONSTRAINT orders_account_id_idempotency_key_id_fkey,
    DROP CONSTRAINT orders_pkey,
    ADD PRIMARY KEY (account_id, id);
ALTER TABLE idempotency_keys
    DROP CONSTRAINT idempotency_keys_pkey,
    ADD PRIMARY KEY (account_id, id);
ALTER TABLE orders ADD FOREIGN KEY (account_id, idempotency_key_id)
    REFERENCES idempotency_keys (account_id, id) ON DELETE SET NULL (idempotency_key_id);
ALTER TABLE refunds
    ADD FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id),
    ADD FOREIGN KEY (account_id, idempotency_key_id)
        REFERENCES idempotency_keys (account_id, id) ON DELETE SET NULL (idempotency_key_id);

-- And of refunds the one by which an order makes sure that its key made none.
ALTER TABLE refunds
    DROP CONSTRAINT refunds_key_once,
    ADD CONSTRAINT refunds_key_once UNIQUE (account_id, idempotency_key);

-- +goose Down
SELECT 1; -- the same schema in any order
