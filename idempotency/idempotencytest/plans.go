package idempotencytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Plan is a statement that a connection has prepared, and its plan.
type Plan struct {
	Statement string

	// Text is the generic plan.
	Text string

	// Custom and Generic count the executions with a plan for their arguments and
	// with the generic plan.
	Custom, Generic int
}

// Plans returns the plans of all statements that the pool's only connection has
// prepared.
func Plans(t testing.TB, pool *pgxpool.Pool) []Plan {
	t.Helper()
	require.EqualValues(t, 1, pool.Config().MaxConns)
	type prepared struct {
		Name, Statement string
		Parameters      int
		Custom, Generic int
	}
	rows, err := pool.Query(t.Context(), `
SELECT name,
       statement,
       cardinality(parameter_types),
       custom_plans,
       generic_plans
  FROM pg_prepared_statements
 ORDER BY prepare_time`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[prepared])
	require.NoError(t, err)

	var plans []Plan
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL plan_cache_mode = force_generic_plan"); err != nil {
			return err
		}
		for _, p := range list {
			explain := "EXPLAIN EXECUTE " + pgx.Identifier{p.Name}.Sanitize()
			if p.Parameters > 0 {
				explain += "(" + strings.Repeat("NULL, ", p.Parameters-1) + "NULL)"
			}
			rows, err := tx.Query(t.Context(), explain, pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				return err
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return fmt.Errorf("%s: %w", p.Statement, err)
			}
			plans = append(plans, Plan{p.Statement, strings.Join(lines, "\n"), p.Custom, p.Generic})
		}
		return nil
	})
	require.NoError(t, err)
	return plans
}
