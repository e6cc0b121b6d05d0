package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"example.com/orders-api/internal/postgres"
)

//go:embed *.sql
var files embed.FS

// FS returns the SQL files.
func FS() fs.FS { return files }

// Migrator applies the migrations.
type Migrator struct {
	pool     *pgxpool.Pool
	logger   *slog.Logger
	provider *goose.Provider
	pid      atomic.Uint32 // of the session that migrates
}

// New returns a Migrator. It migrates in a session of its own, whose interrupted statement is cancelled at
// the server, unlike those of the pool. To exclude others, it takes goose's session-level advisory lock, so
// the pool must not go through a pooler in transaction mode. goose tries once a second instead of waiting,
// because CREATE INDEX CONCURRENTLY of the lock's holder would wait for the snapshot of a waiting statement.
func New(pool *pgxpool.Pool, logger *slog.Logger) (*Migrator, error) {
	m := &Migrator{pool: pool, logger: logger}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	db := stdlib.OpenDB(*pool.Config().ConnConfig, stdlib.OptionAfterConnect(m.begin))
	m.provider, err = goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true), goose.WithSlog(logger),
		goose.WithAllowOutofOrder(true)) // a shop's own migrations have higher numbers than later ones of the template
	if err != nil {
		return nil, errors.Join(fmt.Errorf("migrations: %w", err), db.Close())
	}
	return m, nil
}

// Close releases what New opened. It does not close the pool.
func (m *Migrator) Close() error { return m.provider.Close() }

//go:embed statements/grant.sql
var grantSQL string

// Up applies all pending migrations and returns their number. It then limits the privileges of the
// program's role.
func (m *Migrator) Up(ctx context.Context) (int, error) {
	reporting, stop := context.WithCancel(ctx)
	defer stop()
	go m.report(reporting)
	results, err := m.provider.Up(ctx)
	if err == nil {
		_, err = m.pool.Exec(ctx, grantSQL)
	}
	if err != nil {
		return len(results), fmt.Errorf("migrate up: %w", err)
	}
	return len(results), nil
}

var neededPrivilege = regexp.MustCompile(`\('(\w+)', '([A-Z, ]+)'\)`)

// MissingPrivileges returns what grant.sql grants the program's role and this role lacks.
func MissingPrivileges(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	var tables, privileges []string
	for _, needed := range neededPrivilege.FindAllStringSubmatch(grantSQL, -1) {
		tables, privileges = append(tables, needed[1]), append(privileges, needed[2])
	}
	return postgres.Collect(ctx, pool, "check privileges", pgx.RowTo[string], `
SELECT privilege || ' ON ' || name
  FROM unnest($1::text[], $2::text[]) AS needed (name, privileges),
       string_to_table(privileges, ', ') AS privilege
 WHERE has_table_privilege(to_regclass(name), privilege) IS NOT TRUE
 ORDER BY name, privilege`, tables, privileges)
}

// Down rolls back the migration that was applied last, and returns its file name. A newer program's
// migrations are rolled back by that program only.
func (m *Migrator) Down(ctx context.Context) (string, error) {
	result, err := m.provider.Down(ctx)
	if err != nil {
		return "", fmt.Errorf("migrate down: %w", err)
	}
	return result.Source.Path, nil
}

// Status returns a line for each migration of this program.
func (m *Migrator) Status(ctx context.Context) (lines []string, err error) {
	pending, err := Pending(ctx, m.pool)
	if err != nil {
		return nil, err
	}
	for _, s := range m.provider.ListSources() {
		state := "applied"
		if slices.Contains(pending, s.Path) {
			state = "pending"
		}
		lines = append(lines, state+"  "+s.Path)
	}
	return lines, nil
}

// Pending returns the file names of this program's migrations that the database lacks. It compares all
// versions, because the highest one does not show whether those below it are applied. Applied versions that
// this program does not know are no error, because a newer program that replaces this one has applied them
// first. Unlike goose, it creates no table, because the program's role must not: it needs only SELECT.
func Pending(ctx context.Context, pool *pgxpool.Pool) (pending []string, err error) {
	applied, err := postgres.Collect(ctx, pool, "migrations: applied versions", pgx.RowTo[int64], `
SELECT version_id
  FROM (SELECT DISTINCT ON (version_id) version_id, is_applied FROM goose_db_version ORDER BY version_id, id DESC) AS latest
 WHERE is_applied`)
	if err != nil && postgres.SQLState(err) != postgres.UndefinedTable {
		return nil, err
	}
	names, err := fs.Glob(files, "*.sql")
	for _, name := range names {
		version, nameErr := goose.NumericComponent(name)
		err = errors.Join(err, nameErr)
		if !slices.Contains(applied, version) {
			pending = append(pending, name)
		}
	}
	return pending, err
}

// CheckPath returns an error if search_path leads away from the tables that the database has. The program would
// otherwise work with a second, empty installation: no request would find its key, and no completer the unfinished ones.
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

// begin prepares the session of the migrations. They may take longer than the timeouts of the program's
// sessions, except lock_timeout, because other sessions queue behind a waiting ALTER TABLE.
func (m *Migrator) begin(ctx context.Context, conn *pgx.Conn) error {
	m.pid.Store(conn.PgConn().PID())
	_, err := conn.Exec(ctx, "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
	return err
}

// reportInterval is shorter than lock_timeout, so that a report precedes its error.
const reportInterval = time.Second

// report logs, until ctx ends, which sessions block the migrations, because an abandoned session or a backup
// can do so for hours.
func (m *Migrator) report(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reportInterval):
		}
		if sessions := m.blockers(ctx); len(sessions) > 0 {
			m.logger.WarnContext(ctx, "waiting for other sessions; end one with SELECT pg_terminate_backend(pid) if nothing uses it", "sessions", sessions)
		}
	}
}

// blockers describes the sessions that hold goose's lock, or one for which the migrations wait.
func (m *Migrator) blockers(ctx context.Context) []string {
	found, _ := postgres.Collect(ctx, m.pool, "find the sessions that block", pgx.RowTo[string], `
SELECT concat_ws(' ', 'pid', pid, usename, application_name, client_addr, state, 'since', date_trunc('second', coalesce(xact_start, state_change, backend_start)))
  FROM pg_stat_activity AS a
 WHERE datname = current_database()
   AND (pid = ANY (pg_blocking_pids($1))
        OR pid <> $1 AND EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND granted AND locktype = 'advisory' AND objid::bigint = $2))`,
		m.pid.Load(), lock.DefaultLockID)
	return found
}
