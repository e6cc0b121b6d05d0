-- +goose NO TRANSACTION
-- +goose Up
-- A function instead of four CHECKs, as in 00007.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION order_is_consistent(
    status order_status, amount amount, amount_refunded bigint, items jsonb,
    payment_intent_id external_id, paid_at timestamptz, failure_code text, decline_code text
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN amount_refunded BETWEEN 0 AND amount
       AND jsonb_typeof(items) = 'array'
       -- A paid order has an intent.
       AND (status IN ('paid', 'partially_refunded', 'refunded')) = (paid_at IS NOT NULL)
       AND (paid_at IS NULL OR payment_intent_id IS NOT NULL)
       -- A failed order has a reason.
       AND (status = 'payment_failed') = (failure_code IS NOT NULL)
       AND (decline_code IS NULL OR failure_code IS NOT NULL);
END
$$;
-- +goose StatementEnd

ALTER TABLE orders DROP CONSTRAINT IF EXISTS order_is_consistent;
ALTER TABLE orders ADD CONSTRAINT order_is_consistent CHECK (order_is_consistent(
    status, amount, amount_refunded, items, payment_intent_id, paid_at, failure_code, decline_code
)) NOT VALID;
ALTER TABLE orders VALIDATE CONSTRAINT order_is_consistent;
ALTER TABLE orders
    DROP CONSTRAINT IF EXISTS refunded_at_most_amount,
    DROP CONSTRAINT IF EXISTS orders_items_check,
    DROP CONSTRAINT IF EXISTS paid_has_intent,
    DROP CONSTRAINT IF EXISTS failed_has_reason;

-- +goose Down
ALTER TABLE orders
    DROP CONSTRAINT IF EXISTS refunded_at_most_amount,
    DROP CONSTRAINT IF EXISTS orders_items_check,
    DROP CONSTRAINT IF EXISTS paid_has_intent,
    DROP CONSTRAINT IF EXISTS failed_has_reason;
ALTER TABLE orders
    ADD CONSTRAINT refunded_at_most_amount CHECK (amount_refunded BETWEEN 0 AND amount),
    ADD CONSTRAINT orders_items_check CHECK (jsonb_typeof(items) = 'array'),
    ADD CONSTRAINT paid_has_intent CHECK (
        (status IN ('paid', 'partially_refunded', 'refunded')) = (paid_at IS NOT NULL)
        AND (paid_at IS NULL OR payment_intent_id IS NOT NULL)
    ),
    ADD CONSTRAINT failed_has_reason CHECK (
        (status = 'payment_failed') = (failure_code IS NOT NULL)
        AND (decline_code IS NULL OR failure_code IS NOT NULL)
    );
ALTER TABLE orders DROP CONSTRAINT IF EXISTS order_is_consistent;
DROP FUNCTION IF EXISTS order_is_consistent;
