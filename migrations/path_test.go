package migrations_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations"
	"example.com/orders-api/migrations/dbtest"
)

// reach returns a pool on the same database, with other settings.
func reach(t *testing.T, pool *pgxpool.Pool, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config := pool.Config()
	configure(config)
	other, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(other.Close)
	return other
}

func TestCheckPath(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	_, err := pool.Exec(t.Context(), "CREATE SCHEMA later; CREATE SCHEMA postgres")
	require.NoError(t, err)
	const away = "leads away from the tables, which are in schema public: set search_path=public in DATABASE_URL"
	for name, test := range map[string]struct {
		path, options        string
		program, forMigrator string // the errors
	}{
		"tables":              {"public", "", "", ""},
		"named like the role": {"", "", "", `search_path ("$user", public) ` + away},
		"PGOPTIONS":           {"", "-c search_path=later", away, away},
		"named on purpose":    {"later", "", "for another installation in this database, set search_path to its schema, and run `orders migrate up`", ""},
		"in front of another": {"later,public", "", "", ""},
		"a missing schema":    {"missing", "", "search_path (missing) " + away, away},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := reach(t, pool, func(config *pgxpool.Config) {
				if test.path != "" {
					config.ConnConfig.RuntimeParams["search_path"] = test.path
				}
				if test.options != "" {
					config.ConnConfig.RuntimeParams["options"] = test.options
				}
			})
			for forMigrator, want := range map[bool]string{false: test.program, true: test.forMigrator} {
				err := migrations.CheckPath(t.Context(), other, forMigrator)
				if want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, want)
				}
			}
		})
	}
}

// A pooler may be configured to drop the parameter, so that two services would share one schema.
func TestCheckPath_ignoredByAPooler(t *testing.T) {
	t.Parallel()
	other := reach(t, dbtest.New(t), func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["search_path"] = "later"
		config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
			delete(conn.RuntimeParams, "search_path")
			return nil
		}
	})
	for _, forMigrator := range []bool{false, true} {
		require.ErrorContains(t, migrations.CheckPath(t.Context(), other, forMigrator), `DATABASE_URL has search_path=later, but the session has "$user", public`)
	}
}
