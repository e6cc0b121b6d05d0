-- Lists the statements that distribute the tables, in their order. accounts and api_keys are read
-- before the account is known, so they are copied to every node. Foreign keys are dropped and created
-- again, because Citus accepts none from a distributed table to a table that is not yet distributed.
WITH tables AS (
    SELECT c.oid,
           c.relname IN ('accounts', 'api_keys') AS is_reference
      FROM pg_class AS c
     WHERE c.relkind = 'r'
       AND c.relnamespace = current_schema()::regnamespace
       AND (
            c.relname = 'accounts'
            OR EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = 'account_id')
       )
       AND NOT EXISTS (SELECT FROM pg_dist_partition AS p WHERE p.logicalrelid = c.oid AND (p.partmethod = 'h' OR p.repmodel = 't'))
), foreign_keys AS (
    SELECT conrelid::regclass AS name,
           conname,
           pg_get_constraintdef(oid) AS definition
      FROM pg_constraint
     WHERE contype = 'f'
       AND confrelid::regclass::text NOT IN ('accounts', 'api_keys')
       AND EXISTS (SELECT FROM tables WHERE NOT is_reference AND tables.oid IN (conrelid, confrelid))
)
-- Foreign keys to reference tables require that Citus uses one connection per worker: sequential mode.
SELECT 0 AS step, '' AS name, $$SET LOCAL citus.multi_shard_modify_mode = sequential;
       SET LOCAL statement_timeout = 0;
       SET LOCAL lock_timeout = 0;
       SET LOCAL client_min_messages = warning;
       SELECT create_distributed_function('idempotency_assert(boolean, text)')$$ AS statement
 UNION ALL
SELECT 1, oid::regclass::text, format('SELECT create_reference_table(%L)', oid::regclass)
  FROM tables
 WHERE is_reference
 UNION ALL
SELECT 2, '', format('ALTER TABLE %s DROP CONSTRAINT %I', name, conname)
  FROM foreign_keys
 UNION ALL
SELECT 3, oid::regclass::text, format($$SELECT create_distributed_table(%L, 'account_id', colocate_with => coalesce(
           (SELECT min(logicalrelid::text) FROM pg_dist_partition WHERE partmethod = 'h'), 'default'))$$, oid::regclass)
  FROM tables
 WHERE NOT is_reference
 UNION ALL
SELECT 4, '', format('ALTER TABLE %s ADD CONSTRAINT %I %s', name, conname, definition)
  FROM foreign_keys
 ORDER BY step, name
