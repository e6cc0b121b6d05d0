package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrNoCitus means that the database lacks the extension citus.
var ErrNoCitus = errors.New("the database has no extension citus: create it on the coordinator and on each worker, " +
	"and add the workers with citus_add_node")

// references are the tables that a request reads before its account is known. Citus
// copies them to every node.
var references = []string{"accounts", "api_keys"}

// Distribute spreads the tables over the workers of a Citus cluster: every other table
// that has an account_id is distributed by it, so that all rows of an account are on
// one node (R20). It returns the tables that it has distributed, which are none if it
// ran before. One transaction does it all, so an interruption leaves nothing. Orders
// must not be created meanwhile: each table is locked while its rows are moved.
func (m *Migrator) Distribute(ctx context.Context) ([]string, error) {
	var done []string
	err := pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		var err error
		done, err = distributeTx(ctx, tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("distribute: %w", err)
	}
	return done, nil
}

func distributeTx(ctx context.Context, tx pgx.Tx) ([]string, error) {
	var citus bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')").Scan(&citus); err != nil {
		return nil, err
	}
	if !citus {
		return nil, ErrNoCitus
	}
	// One connection per worker: foreign keys to reference tables require it. Moving
	// many rows takes longer than the timeouts of a request (R21).
	if _, err := tx.Exec(ctx, `
SELECT set_config('citus.multi_shard_modify_mode', 'sequential', true),
       set_config('statement_timeout', '0', true),
       set_config('lock_timeout', '0', true),
       set_config('client_min_messages', 'warning', true)`); err != nil {
		return nil, err
	}
	var done []string
	for _, table := range references {
		changed, err := tx.Exec(ctx, `
SELECT create_reference_table(c.oid)
  FROM pg_class AS c
 WHERE c.oid = $1::regclass
   AND NOT EXISTS (SELECT FROM pg_dist_partition AS p WHERE p.logicalrelid = c.oid AND p.repmodel = 't')`, table)
		if err != nil {
			return nil, err
		}
		if changed.RowsAffected() > 0 {
			done = append(done, table)
		}
	}
	tables, err := undistributed(ctx, tx)
	if err != nil {
		return nil, err
	}
	restore, err := dropForeignKeys(ctx, tx, tables)
	if err != nil {
		return nil, err
	}
	for _, table := range tables {
		if _, err := tx.Exec(ctx, `
SELECT create_distributed_table($1::regclass, 'account_id', colocate_with => coalesce(
    (SELECT min(logicalrelid::text) FROM pg_dist_partition WHERE partmethod = 'h'), 'default'))`, table); err != nil {
			return nil, err
		}
	}
	for _, statement := range restore {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return nil, err
		}
	}
	return append(done, tables...), nil
}

// undistributed lists the tables with an account_id that are not distributed yet.
func undistributed(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, `
SELECT c.oid::regclass::text
  FROM pg_class AS c
  JOIN pg_attribute AS a
    ON a.attrelid = c.oid
   AND a.attname = 'account_id'
 WHERE c.relkind = 'r'
   AND c.relnamespace = current_schema()::regnamespace
   AND c.relname <> ALL($1)
   AND NOT EXISTS (SELECT FROM pg_dist_partition AS p WHERE p.logicalrelid = c.oid AND p.partmethod = 'h')
 ORDER BY c.oid`, references)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// dropForeignKeys drops the foreign keys from and to tables that will be distributed,
// except those to reference tables, and returns the statements that create them again.
// Citus accepts no foreign key between a distributed table and another one.
func dropForeignKeys(ctx context.Context, tx pgx.Tx, tables []string) (restore []string, err error) {
	rows, err := tx.Query(ctx, `
SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname),
       format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
  FROM pg_constraint
 WHERE contype = 'f'
   AND confrelid::regclass::text <> ALL($2)
   AND (conrelid::regclass::text = ANY($1) OR confrelid::regclass::text = ANY($1))`, tables, references)
	if err != nil {
		return nil, err
	}
	type foreignKey struct{ Drop, Add string }
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[foreignKey])
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if _, err := tx.Exec(ctx, key.Drop); err != nil {
			return nil, err
		}
		restore = append(restore, key.Add)
	}
	return restore, nil
}
