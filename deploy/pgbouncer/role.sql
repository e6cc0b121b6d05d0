-- A pooled session cannot be given timeouts by the one who borrows it. So the
-- role brings them, with the values that the API asks for where it can (R21).
-- They hold for new sessions: run this before PgBouncer connects.
ALTER ROLE orders SET lock_timeout = '2s';
ALTER ROLE orders SET statement_timeout = '10s';
ALTER ROLE orders SET idle_in_transaction_session_timeout = '5s';
