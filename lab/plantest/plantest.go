// Package plantest reads the plans of the statements that a connection has prepared.
package plantest

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Plan is a statement that a connection has prepared, and its generic plan.
type Plan struct {
	Name, Statement string
	Parameters      int
	Custom, Generic int    // executions with a plan for their arguments, and with the generic one
	Text            string `db:"-"`
}

// Of returns the plans of all statements that the pool's only connection has
// prepared.
func Of(t testing.TB, pool *pgxpool.Pool) []Plan {
	t.Helper()
	require.EqualValues(t, 1, pool.Config().MaxConns)
	rows, err := pool.Query(t.Context(), `
SELECT name,
       statement,
       cardinality(parameter_types),
       custom_plans,
       generic_plans
  FROM pg_prepared_statements`)
	require.NoError(t, err)
	plans, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Plan])
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan")
	require.NoError(t, err)
	for i, p := range plans {
		nulls := strings.TrimSuffix(strings.Repeat("NULL, ", p.Parameters), ", ")
		rows, err := pool.Query(t.Context(), "EXPLAIN EXECUTE "+p.Name+strings.Replace("("+nulls+")", "()", "", 1), pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, p.Statement)
		plans[i].Text = strings.Join(lines, "\n")
	}
	return plans
}
