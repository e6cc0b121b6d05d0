CREATE TABLE notes (
    account_id uuid         NOT NULL,
    id         uuid         NOT NULL,
    order_id   uuid         NOT NULL,
    text       varchar(500) NOT NULL,
    created_at timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, id),
    CONSTRAINT notes_order_unique UNIQUE (account_id, order_id),
    FOREIGN KEY (account_id, order_id) REFERENCES orders (account_id, id)
);
