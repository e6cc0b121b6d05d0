-- A client of a pooler cannot set timeouts for its session, so the role sets them, to the
-- values that the API requires (R21, session timeouts). They apply only to new sessions, so
-- run this before PgBouncer connects.
ALTER ROLE orders SET lock_timeout = '2s';
ALTER ROLE orders SET statement_timeout = '10s';
ALTER ROLE orders SET idle_in_transaction_session_timeout = '5s';
