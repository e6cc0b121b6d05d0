package dbtest

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/migrations"
)

// TestModule replaces migrations/dbtest/one_server.go by this file. A database of Citus
// consists of databases with one name on all nodes.

// connectNodes connects to the workers of the cluster whose coordinator is DATABASE_URL.
func (s *server) connectNodes(ctx context.Context) error {
	for worker := range strings.FieldsSeq(os.Getenv("DBTEST_CITUS_WORKERS")) {
		pool, err := connectAdmin(ctx, worker)
		if err != nil {
			return fmt.Errorf("DBTEST_CITUS_WORKERS: %w", err)
		}
		s.workers = append(s.workers, pool)
	}
	return nil
}

func (s *server) nodes() []*pgxpool.Pool { return append([]*pgxpool.Pool{s.admin}, s.workers...) }

func (s *server) exec(ctx context.Context, statement string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range s.nodes() {
		group.Go(func() error {
			_, err := node.Exec(ctx, statement)
			return err
		})
	}
	return group.Wait()
}

// joinNodes connects the databases of all nodes.
func (s *server) joinNodes(ctx context.Context, database string) error {
	// A few shards suffice, and each costs time when a test's database is copied.
	join := []string{"ALTER DATABASE " + quote(database) + " SET citus.shard_count = 4"}
	for i, node := range s.nodes() {
		config := node.Config().ConnConfig.Copy()
		config.Database = database
		// Fixtures write "column - interval", which Citus rejects while it is STABLE.
		if err := execOn(ctx, config, "CREATE EXTENSION citus",
			"ALTER FUNCTION timestamptz_mi_interval IMMUTABLE", "ALTER FUNCTION timestamptz_pl_interval IMMUTABLE"); err != nil {
			return err
		}
		function := "citus_add_node"
		if i == 0 {
			function = "citus_set_coordinator_host"
		}
		join = append(join, fmt.Sprintf("SELECT %s('%s', %d)", function, config.Host, config.Port))
	}
	coordinator := s.admin.Config().ConnConfig.Copy()
	coordinator.Database = database
	return execOn(ctx, coordinator, join...)
}

func (s *server) distribute(ctx context.Context, migrator *migrations.Migrator) error {
	_, err := migrator.Distribute(ctx)
	return err
}

// disconnect ends the connections of Citus's maintenance daemon on each node.
func (s *server) disconnect(ctx context.Context, database string) error {
	if err := s.exec(ctx, "ALTER DATABASE "+quote(database)+" ALLOW_CONNECTIONS false"); err != nil {
		return err
	}
	return s.exec(ctx, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '"+database+"'")
}

func execOn(ctx context.Context, config *pgx.ConnConfig, statements ...string) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
