-- The id is derived from the account and the client's key (R5). So the primary
-- key also sees to it that a key never grants twice, not even after the reaper
-- has deleted it (R17).
CREATE TABLE credits (
    account_id uuid        NOT NULL REFERENCES accounts (id),
    id         uuid        NOT NULL,
    wallet     text        NOT NULL CHECK (char_length(wallet) BETWEEN 1 AND 64),
    amount     bigint      NOT NULL CHECK (amount > 0),
    status     text        NOT NULL CHECK (status IN ('pending', 'granted', 'refused')),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, id)
);
