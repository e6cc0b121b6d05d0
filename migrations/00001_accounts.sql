-- +goose Up
CREATE TABLE accounts (
    id         uuid        PRIMARY KEY, -- random: other ids derive from it, and must differ between databases (R5, derived ids)
    name       text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_keys (
    account_id uuid        NOT NULL REFERENCES accounts (id),
    id         uuid        NOT NULL,
    key_hash   bytea       NOT NULL CHECK (octet_length(key_hash) = 32), -- SHA-256
    prefix     text        NOT NULL CHECK (char_length(prefix) BETWEEN 4 AND 16),
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,

    PRIMARY KEY (account_id, id),

    -- account_id is in every unique constraint, because a sharded table can only enforce those that
    -- contain its distribution column (R20, the account in every table).
    CONSTRAINT api_keys_key_hash_unique UNIQUE (key_hash, account_id)
);

-- +goose Down
DROP TABLE api_keys, accounts;
