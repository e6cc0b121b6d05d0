package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

// limited creates a role that may open some sessions, and returns its pool of ten.
func limited(t *testing.T, sessions int) *pgxpool.Pool {
	t.Helper()
	owner := dbtest.New(t)
	role := "limited_" + owner.Config().ConnConfig.Database
	_, err := owner.Exec(t.Context(), fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'limited' CONNECTION LIMIT %d", role, sessions))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := owner.Exec(context.Background(), "DROP ROLE "+role)
		require.NoError(t, err)
	})
	config := owner.Config()
	postgres.Configure(config)
	config.ConnConfig.User, config.ConnConfig.Password, config.MaxConns = role, "limited", 10
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// A role may open fewer sessions than its pool. Each query waits for one of them, and the server gets
// few further attempts.
func TestQuery_fewerSessionsThanThePool(t *testing.T) {
	t.Parallel()
	pool := limited(t, 2)
	require.NoError(t, pool.Ping(t.Context()))
	var group errgroup.Group
	for range 40 {
		group.Go(func() error {
			_, err := pgx.CollectExactlyOneRow(postgres.Query(t.Context(), pool, "SELECT pg_sleep(0.01)::text"), pgx.RowTo[string])
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, 2, pool.Stat().TotalConns())
}

// Without any session, waiting would be in vain.
func TestQuery_noSession(t *testing.T) {
	t.Parallel()
	pool := limited(t, 1)
	other, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	require.NoError(t, err)
	_, err = postgres.Collect(t.Context(), pool, "read", pgx.RowTo[int], "SELECT 1")
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	require.ErrorContains(t, err, "too many connections for role")
	require.NoError(t, other.Close(t.Context()))
}
