-- +goose Up
CREATE TABLE audit_records (
    id            uuid        NOT NULL,
    account_id    uuid        NOT NULL REFERENCES accounts (id),
    action        text        NOT NULL CHECK (char_length(action) BETWEEN 1 AND 64),
    resource_type text        NOT NULL CHECK (char_length(resource_type) BETWEEN 1 AND 64),
    resource_id   text        NOT NULL CHECK (char_length(resource_id) BETWEEN 1 AND 255),
    data          jsonb       NOT NULL DEFAULT '{}',
    request_ip    inet,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, id)
);
COMMENT ON TABLE audit_records IS 'What happened to a resource, written in the transaction that made it happen. Never updated.';
COMMENT ON COLUMN audit_records.request_ip IS 'The client''s address; NULL when no client asked (completer, operator).';

CREATE INDEX audit_records_resource ON audit_records (account_id, resource_type, resource_id, created_at);

-- +goose Down
DROP TABLE audit_records;
