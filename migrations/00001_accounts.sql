-- +goose Up
CREATE TABLE accounts (
    id         uuid        PRIMARY KEY,
    name       text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE accounts IS 'One row per customer of the API; every other table carries its id (R20).';
COMMENT ON COLUMN accounts.id IS 'Random (UUIDv4): derived ids hash it, so it must not repeat across databases or restores (R5).';

CREATE TABLE api_keys (
    id         uuid        NOT NULL,
    account_id uuid        NOT NULL REFERENCES accounts (id),
    key_hash   bytea       NOT NULL UNIQUE CHECK (octet_length(key_hash) = 32),
    prefix     text        NOT NULL CHECK (char_length(prefix) BETWEEN 4 AND 16),
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,
    PRIMARY KEY (account_id, id)
);
COMMENT ON COLUMN api_keys.key_hash IS 'SHA-256 of the API key. The key itself is shown once, at creation, and kept nowhere.';
COMMENT ON COLUMN api_keys.prefix IS 'First characters of the key, so that a person can tell keys apart.';

-- +goose Down
DROP TABLE api_keys;
DROP TABLE accounts;
