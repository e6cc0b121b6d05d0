-- The roles of a database that has no tables yet. orders_owner is for orders migrate
-- only. orders is for all other commands: it reads and writes rows, and cannot change
-- the schema. Run this as a superuser in the new database, then give both a password.
CREATE ROLE orders_owner LOGIN;
CREATE ROLE orders LOGIN;
ALTER SCHEMA public OWNER TO orders_owner;
ALTER DEFAULT PRIVILEGES FOR ROLE orders_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO orders;
