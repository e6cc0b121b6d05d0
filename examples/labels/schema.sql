CREATE TABLE labels (
    account_id      uuid        NOT NULL,
    id              uuid        NOT NULL, -- our reference at the carrier
    order_id        uuid        NOT NULL,
    status          text        NOT NULL CHECK (status IN ('pending', 'bought', 'refused')),
    tracking_number varchar(64) CHECK ((tracking_number IS NOT NULL) = (status = 'bought')),
    sent_at         timestamptz, -- committed before the request is sent
    created_at      timestamptz NOT NULL DEFAULT now(),
    cancel_requested_by text, -- an operator, see buyLabel.Mark
    PRIMARY KEY (account_id, id),
    FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id)
);
