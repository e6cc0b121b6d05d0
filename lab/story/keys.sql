CREATE TABLE idempotency_keys (
    idempotency_key text PRIMARY KEY,     -- chosen by the client
    params_hash     bytea NOT NULL,       -- fingerprint of the request: another one is rejected
    recovery_point  text NOT NULL,        -- how far the request has come
    lease_token     uuid NOT NULL,        -- the run that may write, new for each run
    locked_at       timestamptz,          -- since when; NULL if no run works on it
    response_code   integer,              -- stored with the exact bytes of the response
    response_body   bytea                 -- (the real table has more columns)
);
