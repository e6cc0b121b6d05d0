package migrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/postgres"
)

// ErrNoCitus means that the database lacks the extension.
var ErrNoCitus = errors.New("the database has no extension citus: create it on the coordinator and on each worker, " +
	"and add the workers with citus_add_node")

//go:embed statements/distribute.sql
var distributeSQL string

// Distribute spreads the tables over the workers of a Citus cluster by account_id (R20, the account
// in every table), in one transaction, and returns the tables. Each table stays locked until the
// transaction ends.
func (m *Migrator) Distribute(ctx context.Context) (tables []string, err error) {
	err = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, distributeSQL) // CollectRows returns the error
		steps, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
			Step             int
			Table, Statement string
		}])
		if postgres.SQLState(err) == postgres.UndefinedTable { // pg_dist_partition
			return ErrNoCitus
		}
		if err != nil {
			return err
		}
		for _, step := range steps {
			if _, err := tx.Exec(ctx, step.Statement); err != nil {
				return err
			}
			if step.Table != "" {
				tables = append(tables, step.Table)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("distribute: %w", err)
	}
	return tables, nil
}
