-- deploy/roles.sql grants the program's role all privileges on rows of each new table. This statement
-- revokes the ones that the program does not use, so that none of its processes can rewrite the audit
-- trail, delete a key or change the record of migrations. A table that is not named here may not be
-- deleted from. It changes no other role. orders serve is ready only with the privileges that are named here.
DO $$
DECLARE
    statement text;
BEGIN
    LOCK TABLE goose_db_version IN SHARE UPDATE EXCLUSIVE MODE; -- without it, concurrent grants fail
    FOR statement IN
        SELECT DISTINCT format(
                   CASE WHEN needed IS NULL
                        THEN 'REVOKE DELETE ON %1$s FROM %2$s'
                        ELSE 'REVOKE ALL ON %1$s FROM %2$s; GRANT %3$s ON %1$s TO %2$s'
                   END, c.oid::regclass, grantee::regrole, needed)
          FROM pg_class AS c
          LEFT JOIN (VALUES ('goose_db_version', 'SELECT'),
                       ('accounts', 'SELECT, INSERT'),
                       ('audit_records', 'SELECT, INSERT'),
                       ('api_keys', 'SELECT, INSERT, UPDATE'),
                       ('idempotency_keys', 'SELECT, INSERT, UPDATE'),
                       ('orders', 'SELECT, INSERT, UPDATE'),
                       ('refunds', 'SELECT, INSERT, UPDATE'),
                       ('provider_events', 'SELECT, INSERT, DELETE'),
                       ('staged_jobs', 'SELECT, INSERT, UPDATE, DELETE'),
                       ('provider_event_place', 'SELECT, INSERT, UPDATE')) AS needs (name, needed) ON c.relname = name
          JOIN pg_default_acl AS d ON d.defaclnamespace = c.relnamespace AND d.defaclrole = c.relowner
         CROSS JOIN aclexplode(d.defaclacl)
         WHERE c.relnamespace = current_schema()::regnamespace
           AND c.relkind IN ('r', 'p')
           AND c.relowner = current_user::regrole
           AND privilege_type = 'INSERT'
           AND grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$
