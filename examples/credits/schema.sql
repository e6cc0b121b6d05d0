-- The id is derived from the account and the client's key (R5).
CREATE TABLE credits (
    account_id uuid        NOT NULL REFERENCES accounts (id),
    id         uuid        NOT NULL,
    wallet     text        NOT NULL CHECK (char_length(wallet) BETWEEN 1 AND 64),
    amount     bigint      NOT NULL CHECK (amount > 0),
    status     text        NOT NULL CHECK (status IN ('pending', 'granted', 'refused')),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, id)
);
