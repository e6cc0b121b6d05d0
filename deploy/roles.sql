-- Creates the two roles in a database that has no tables yet. orders_owner is only for the
-- command orders migrate. The role orders is for all other commands: it reads and writes
-- rows, and cannot change the schema. On the program's own tables, orders migrate up
-- revokes the privileges that those commands do not need.
-- Run this in the new database as its owner, who must be able to create roles. Then give
-- both roles a password.
\set ON_ERROR_STOP on
BEGIN;
CREATE ROLE orders_owner LOGIN;
CREATE ROLE orders LOGIN;
GRANT orders_owner TO CURRENT_USER; -- the next statements require it, unless a superuser runs them
ALTER SCHEMA public OWNER TO orders_owner;
ALTER DEFAULT PRIVILEGES FOR ROLE orders_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO orders;
COMMIT;
