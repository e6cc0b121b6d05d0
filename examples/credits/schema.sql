-- A limit of one column is a domain, as in 00001_idempotency.sql. name64 and amount exist.
CREATE DOMAIN credit_status AS text CHECK (VALUE IN ('pending', 'granted', 'refused'));

-- The id is derived from the account and the client's key (R5).
CREATE TABLE credits (
    account_id uuid          NOT NULL REFERENCES accounts (id),
    id         uuid          NOT NULL,
    wallet     name64        NOT NULL,
    amount     amount        NOT NULL,
    status     credit_status NOT NULL,
    created_at timestamptz   NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, id)
);
