CREATE DOMAIN credit_status AS text CHECK (VALUE IN ('pending', 'granted', 'refused'));

CREATE TABLE credits (
    account_id uuid          NOT NULL REFERENCES accounts (id),
    id         uuid          NOT NULL,
    wallet     name64        NOT NULL,
    amount     amount        NOT NULL,
    status     credit_status NOT NULL,
    created_at timestamptz   NOT NULL DEFAULT now(),
    cancel_requested_by text, -- an operator, see grantCredit.Mark
    PRIMARY KEY (account_id, id)
);
