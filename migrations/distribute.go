package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNoCitus means that the database lacks the extension.
var ErrNoCitus = errors.New("the database has no extension citus: create it on the coordinator and on each worker, " +
	"and add the workers with citus_add_node")

// distributeSQL lists the statements that distribute the tables. Those in $1, which are read
// before the account is known, are copied to every node. Foreign keys are created again, because
// Citus accepts none between a distributed table and another one.
const distributeSQL = `
WITH tables AS (
    SELECT c.oid,
           c.relname = ANY($1) AS is_reference
      FROM pg_class AS c
     WHERE c.relkind = 'r'
       AND c.relnamespace = current_schema()::regnamespace
       AND (
            c.relname = ANY($1)
            OR EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = 'account_id')
       )
       AND NOT EXISTS (SELECT FROM pg_dist_partition AS p WHERE p.logicalrelid = c.oid AND (p.partmethod = 'h' OR p.repmodel = 't'))
), foreign_keys AS (
    SELECT conrelid::regclass AS name,
           conname,
           pg_get_constraintdef(oid) AS definition
      FROM pg_constraint
     WHERE contype = 'f'
       AND confrelid::regclass::text <> ALL($1)
       AND EXISTS (SELECT FROM tables WHERE NOT is_reference AND tables.oid IN (conrelid, confrelid))
)
SELECT 0 AS step, '' AS name, 'SELECT create_distributed_function(''idempotency_assert(boolean, text)'')'
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
 ORDER BY step, name`

// Distribute spreads the tables over the workers of a Citus cluster by account_id (R20), in
// one transaction, and returns the tables. Each is locked while its rows are moved.
func (m *Migrator) Distribute(ctx context.Context) ([]string, error) {
	var done []string
	err := pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		// Foreign keys to reference tables require one connection per worker.
		if _, err := tx.Exec(ctx, `
SELECT set_config('citus.multi_shard_modify_mode', 'sequential', true),
       set_config('statement_timeout', '0', true),
       set_config('lock_timeout', '0', true),
       set_config('client_min_messages', 'warning', true)`); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, distributeSQL, []string{"accounts", "api_keys"})
		type statement struct {
			Step       int
			Table, SQL string
		}
		statements, err := pgx.CollectRows(rows, pgx.RowToStructByPos[statement])
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42P01" { // no pg_dist_partition
			return ErrNoCitus
		}
		if err != nil {
			return err
		}
		for _, s := range statements {
			if _, err := tx.Exec(ctx, s.SQL); err != nil {
				return err
			}
			if s.Table != "" {
				done = append(done, s.Table)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("distribute: %w", err)
	}
	return done, nil
}
