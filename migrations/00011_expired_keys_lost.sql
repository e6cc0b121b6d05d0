-- +goose Up
-- An operator expires the key of an order whose rows are lost, so that no response names it.
ALTER TABLE expired_keys ADD COLUMN lost boolean NOT NULL DEFAULT false;

-- The reaper copies the time of the order's transaction, the operator's command that of Stripe's
-- intent, in whole seconds. Without an order of this time, the order was lost.
UPDATE expired_keys AS k
   SET lost = true
 WHERE k.operation = 'create_order'
   AND k.created_at = date_trunc('second', k.created_at)
   AND NOT EXISTS (SELECT 1 FROM orders AS o WHERE o.account_id = k.account_id AND o.created_at = k.created_at);

-- +goose Down
ALTER TABLE expired_keys DROP COLUMN lost;
