-- +goose Up
-- Dead jobs are few and stay until a person looks; metrics count them again and
-- again, beside a backlog of any length.
CREATE INDEX staged_jobs_dead ON staged_jobs (kind, failed_at) WHERE failed_at IS NOT NULL;

-- +goose Down
DROP INDEX staged_jobs_dead;
