-- +goose Up
-- The table of the example shop. goose's own table is in the same schema, so that the shop
-- and the API have independent versions.

CREATE TABLE shop.purchases (
    id              uuid        PRIMARY KEY DEFAULT gen_random_uuid(), -- also the order's reference at the API
    customer        text        COLLATE "C" NOT NULL CHECK (char_length(customer) <= 64), -- from the cookie
    state           text        NOT NULL DEFAULT 'basket' CHECK (state IN ('basket', 'paying', 'paid', 'stopped')),
    quantities      jsonb       NOT NULL,             -- by SKU
    idempotency_key text        COLLATE "C" UNIQUE,   -- from the basket's creation until the order is paid
    request         bytea,                            -- the exact body; jsonb would change its bytes
    attempts        integer     NOT NULL DEFAULT 0,   -- each attempt is counted before the request is sent
    attempted_at    timestamptz NOT NULL DEFAULT now(),
    requested_at    timestamptz NOT NULL DEFAULT now(), -- when the customer pressed the button
    order_id        text,
    message         text        NOT NULL DEFAULT '',  -- tells the customer why the last payment failed
    created_at      timestamptz NOT NULL DEFAULT now(),

    -- Key and request are stored before the first attempt, because a retry must send the same ones.
    CONSTRAINT request_is_stored CHECK ((state = 'basket') = (request IS NULL)),
    CONSTRAINT key_is_dropped_when_paid CHECK ((state = 'paid') = (idempotency_key IS NULL)),
    CONSTRAINT paid_has_order CHECK ((state = 'paid') = (order_id IS NOT NULL))
);

-- A customer has one basket in all tabs, and gets no second basket while the first is being paid.
CREATE UNIQUE INDEX purchases_open ON shop.purchases (customer) WHERE state IN ('basket', 'paying');

CREATE INDEX purchases_of_customer ON shop.purchases (customer, created_at);
CREATE INDEX purchases_abandoned ON shop.purchases (attempted_at) WHERE state = 'paying';

-- +goose Down
DROP TABLE shop.purchases;
