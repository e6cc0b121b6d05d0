package migrations

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// CheckPath returns an error if search_path leads away from the tables that the database has. It would
// be a second, empty installation: no request would find its key, and no completer the unfinished ones.
// A schema named like the role, ALTER ROLE … SET search_path and PGOPTIONS change the path unnoticed, so
// only search_path in DATABASE_URL may name a schema without tables, and only a Migrator (forMigration)
// may go there.
func CheckPath(ctx context.Context, pool *pgxpool.Pool, forMigration bool) error {
	var path, current, visible string
	var installed []string
	err := pool.QueryRow(ctx, `
SELECT current_setting('search_path'),
       coalesce(current_schema(), ''),
       coalesce((SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('goose_db_version')), ''),
       coalesce((SELECT array_agg(g.relnamespace::regnamespace::text ORDER BY 1)
                   FROM pg_class AS g
                   JOIN pg_class AS k ON k.relnamespace = g.relnamespace AND k.relname = 'idempotency_keys'
                  WHERE g.relname = 'goose_db_version'), '{}')`).Scan(&path, &current, &visible, &installed)
	if err != nil {
		return fmt.Errorf("check search_path: %w", postgres.Translate(err))
	}
	named := pool.Config().ConnConfig.RuntimeParams["search_path"]
	used := visible
	if forMigration {
		used = current
	}
	switch {
	case named != "" && named != path:
		return fmt.Errorf("DATABASE_URL has search_path=%s, but the session has %s, because a pooler ignores the parameter: "+
			"set it for the role (ALTER ROLE … SET search_path) and remove it from DATABASE_URL", named, path)
	case len(installed) == 0, slices.Contains(installed, used), forMigration && named != "" && current != "":
		return nil
	}
	return fmt.Errorf("search_path (%s) leads away from the tables, which are in schema %s: set search_path=%s in DATABASE_URL, and grant USAGE on it; "+
		"for another installation in this database, set search_path to its schema, and run `orders migrate up`",
		path, strings.Join(installed, ", "), installed[0])
}
