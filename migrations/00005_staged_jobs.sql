-- +goose Up
CREATE TABLE staged_jobs (
    id         uuid        NOT NULL,
    account_id uuid        NOT NULL REFERENCES accounts (id),
    kind       text        NOT NULL CHECK (char_length(kind) BETWEEN 1 AND 64),
    args       jsonb       NOT NULL,
    run_at     timestamptz NOT NULL DEFAULT now(),
    attempt    integer     NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    last_error text        CHECK (char_length(last_error) <= 500),
    failed_at  timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, id)
);
COMMENT ON TABLE staged_jobs IS 'Work staged in the transaction that made it necessary (R15). A row leaves when its work is done.';
COMMENT ON COLUMN staged_jobs.run_at IS 'Not before this moment. A worker that takes a job moves it forward: its lease.';
COMMENT ON COLUMN staged_jobs.attempt IS 'Times taken. The worker that finishes a job names the attempt it took.';
COMMENT ON COLUMN staged_jobs.failed_at IS 'Set after the last attempt: dead until a person looks. NULL while the job is alive.';

CREATE INDEX staged_jobs_due ON staged_jobs (kind, run_at) WHERE failed_at IS NULL;

-- +goose Down
DROP TABLE staged_jobs;
