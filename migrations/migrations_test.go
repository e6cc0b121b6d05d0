package migrations_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/migrations"
	"example.com/orders-api/migrations/dbtest"
)

func newMigrator(t *testing.T, pool *pgxpool.Pool) *migrations.Migrator {
	t.Helper()
	m, err := migrations.New(pool, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func schema(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	return texts(t, pool, `
WITH tables AS (
    SELECT oid,
           relname,
           reloptions
      FROM pg_class
     WHERE relnamespace = 'public'::regnamespace
       AND relkind IN ('r', 'p', 'v', 'm')
       AND relname <> 'goose_db_version'
)
SELECT format('table %s %s', relname, reloptions)
  FROM tables
 UNION ALL
SELECT format('column %s.%s %s %s %s', relname, attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid))
  FROM tables
  JOIN pg_attribute ON attrelid = tables.oid AND attnum > 0 AND NOT attisdropped
  LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
 UNION ALL
SELECT format('index %s', pg_get_indexdef(indexrelid))
  FROM tables
  JOIN pg_index ON indrelid = tables.oid
 UNION ALL
SELECT format('constraint %s.%s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
  FROM pg_constraint
 WHERE connamespace = 'public'::regnamespace
   AND conrelid IN (SELECT oid FROM tables UNION SELECT 0)
 UNION ALL
SELECT format('type %s', typname)
  FROM pg_type
 WHERE typnamespace = 'public'::regnamespace
   AND typtype IN ('d', 'e')
 UNION ALL
SELECT format('function %s', oid::regprocedure)
  FROM pg_proc
 WHERE pronamespace = 'public'::regnamespace
 ORDER BY 1`)
}

func TestMigrator_upDownUp(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	m := newMigrator(t, pool)
	files := len(fileNames(t))

	applied, err := m.Up(t.Context())
	require.NoError(t, err)
	require.Equal(t, files, applied)
	first := schema(t, pool)
	require.NotEmpty(t, first)
	applied, err = m.Up(t.Context())
	require.NoError(t, err)
	require.Zero(t, applied)

	for range files {
		name, err := m.Down(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, name)
	}
	require.Empty(t, schema(t, pool))
	_, err = m.Up(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, schema(t, pool))
	require.Equal(t, first, schema(t, dbtest.New(t)), "dbtest's template has the same schema")
}

func fileNames(t *testing.T) []string {
	t.Helper()
	names, err := fs.Glob(migrations.FS(), "*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	return names
}

func requirePending(t *testing.T, pool *pgxpool.Pool, want ...string) {
	t.Helper()
	pending, err := migrations.Pending(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, want, pending)
	m := newMigrator(t, pool)
	status, err := m.Status(t.Context())
	require.NoError(t, err)
	for i, name := range fileNames(t) {
		state := "applied  "
		if slices.Contains(want, name) {
			state = "pending  "
		}
		require.Equal(t, state+name, status[i])
	}
}

func TestMigrator_pending(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	m := newMigrator(t, pool)
	files := fileNames(t)
	requirePending(t, pool, files...)
	require.Equal(t, []string{"0"}, texts(t, pool, "SELECT count(*)::text FROM pg_tables WHERE schemaname = 'public'"), "it changes nothing")

	_, err := m.Up(t.Context())
	require.NoError(t, err)
	requirePending(t, pool)

	// Another tool may record a rollback as a second row of the version.
	_, err = pool.Exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (1, false)")
	require.NoError(t, err)
	requirePending(t, pool, files[0])
	_, err = pool.Exec(t.Context(), "DELETE FROM goose_db_version WHERE NOT is_applied")
	require.NoError(t, err)

	// A shop's own migrations are numbered by time, so a later migration of the template has a lower number.
	newest, err := m.Down(t.Context())
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99991231235959, true)")
	require.NoError(t, err)
	requirePending(t, pool, newest)
	applied, err := m.Up(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, applied)
	requirePending(t, pool)
	_, err = m.Down(t.Context())
	require.Error(t, err, "only the program that applied the newest one rolls it back")
}

func TestMigrator_concurrentUp(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t, func(c *pgxpool.Config) { c.MaxConns = 8 })
	var group errgroup.Group
	applied := make([]int, 3)
	for i := range applied {
		m := newMigrator(t, pool)
		group.Go(func() error {
			var err error
			applied[i], err = m.Up(t.Context())
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.ElementsMatch(t, []int{len(fileNames(t)), 0, 0}, applied)
	require.Equal(t, schema(t, dbtest.New(t)), schema(t, pool))
}

// lines passes each log line on.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("waiting for other sessions")) {
		l <- string(line)
	}
	return len(line), nil
}

// A session that is not used any more, such as that of a killed process, may hold the lock of the migrations.
func TestMigrator_namesTheHolderOfTheLock(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	holder, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), "SELECT pg_advisory_lock($1)", lock.DefaultLockID)
	require.NoError(t, err)
	reports, applied := make(lines), make(chan error)
	m, err := migrations.New(pool, slog.New(slog.NewTextHandler(reports, nil)))
	require.NoError(t, err)
	defer m.Close()
	go func() {
		_, err := m.Up(t.Context())
		applied <- err
	}()
	require.Contains(t, <-reports, "pid "+strconv.Itoa(int(holder.PgConn().PID()))+" ")
	require.NoError(t, holder.Close(t.Context()))
	for {
		select {
		case <-reports: // one that began before the lock was free
		case err := <-applied:
			require.NoError(t, err)
			return
		}
	}
}

// CREATE INDEX CONCURRENTLY would never end beside a backup if it had a lock_timeout.
func TestMigrations_concurrentlyWithoutLockTimeout(t *testing.T) {
	t.Parallel()
	for _, name := range fileNames(t) {
		file, err := fs.ReadFile(migrations.FS(), name)
		require.NoError(t, err)
		up, down, _ := strings.Cut(string(file), "-- +goose Down")
		for _, part := range []string{up, down} {
			if before, _, found := strings.Cut(part, " CONCURRENTLY "); found {
				require.Contains(t, before, "\nSET lock_timeout = 0;\n", name)
				require.Contains(t, part, "\nRESET lock_timeout;\n", name)
			}
		}
	}
}

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
