CREATE TABLE credits (
    account_id uuid        NOT NULL REFERENCES accounts (id),
    id         uuid        NOT NULL,
    wallet     name64      NOT NULL,
    amount     amount      NOT NULL,
    status     text        NOT NULL CHECK (status IN ('pending', 'granted', 'refused')),
    created_at timestamptz NOT NULL DEFAULT now(),
    cancel_requested_by text, -- an operator, see grantCredit.Mark
    PRIMARY KEY (account_id, id)
);
