package doctor_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/cmd/internal/doctor"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

const longTimeout = time.Minute

func check(t *testing.T, e *setup.All, timeout time.Duration) map[string]string {
	t.Helper()
	lines := map[string]string{}
	for _, result := range doctor.Run(t.Context(), e, nil, timeout) {
		line := result.String()
		require.NotContains(t, line, "canary")
		require.NotContains(t, lines, result.Check, "two results of one check")
		lines[result.Check] = line
	}
	return lines
}

// overrideFunction replaces a function of PostgreSQL in new sessions of the database.
func overrideFunction(t *testing.T, pool *pgxpool.Pool, function string) {
	t.Helper()
	execute(t, pool, "CREATE SCHEMA overrides")
	execute(t, pool, "CREATE FUNCTION overrides."+function)
	execute(t, pool, "ALTER DATABASE this SET search_path = overrides, pg_catalog, public")
}

// execute runs a statement, in which "DATABASE this" is the test's database.
func execute(t *testing.T, pool *pgxpool.Pool, statement string) {
	t.Helper()
	var database string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT quote_ident(current_database())").Scan(&database))
	_, err := pool.Exec(t.Context(), strings.ReplaceAll(statement, "DATABASE this", "DATABASE "+database))
	require.NoError(t, err)
}

func TestRun_database(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*testing.T, *pgxpool.Pool)
		setting string
		check   string
		want    []string
	}{
		"no lock_timeout": {
			setting: "&lock_timeout=0",
			check:   "sessions",
			want:    []string{"✗ ", "the database session has no lock_timeout", "ALTER ROLE"},
		},
		"no migrations": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) { execute(t, pool, "DROP TABLE goose_db_version") },
			setting: "&role=pg_monitor",
			check:   "migrations",
			want:    []string{"✗ ", "  the database schema is out of date → run orders migrate up (at 0, need "},
		},
		"a database of a newer program": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				execute(t, pool, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)")
			},
			check: "migrations",
			want:  []string{"! ", "version 99, which a newer program has applied"},
		},
		"clock five minutes ahead": {
			prepare: func(t *testing.T, pool *pgxpool.Pool) {
				overrideFunction(t, pool, "now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.now() + interval '5 minutes' $$")
			},
			check: "clock",
			want:  []string{"! ", "the database's clock differs by 5m", " from this machine's → run a time service"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t, postgres.Configure)
			if test.prepare != nil {
				test.prepare(t, pool)
			}
			e := providerEnvironment(t, http.NotFoundHandler())
			e.Database.URL = setup.Secret(dbtest.URL(pool) + test.setting)
			lines := check(t, e, longTimeout)
			for _, part := range test.want {
				require.Contains(t, lines[test.check], part)
			}
		})
	}
}
