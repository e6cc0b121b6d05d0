-- The roles of a database that has no tables yet. orders_owner is for orders migrate
-- only. orders is for all other commands: it reads and writes rows, and cannot change
-- the schema. Of the program's tables, orders migrate up leaves it what the commands need.
-- Run this in the new database as its owner, who must be able to create roles, then give
-- both a password.
\set ON_ERROR_STOP on
BEGIN;
CREATE ROLE orders_owner LOGIN;
CREATE ROLE orders LOGIN;
GRANT orders_owner TO CURRENT_USER; -- required by what follows, except of a superuser
ALTER SCHEMA public OWNER TO orders_owner;
ALTER DEFAULT PRIVILEGES FOR ROLE orders_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO orders;
COMMIT;
