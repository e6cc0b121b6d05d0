// Package migrations applies the database schema with goose. A released file is never
// edited; a change is a new file.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// FS returns the SQL files.
func FS() fs.FS { return files }

// Migrator applies the migrations.
type Migrator struct {
	pool     *pgxpool.Pool
	provider *goose.Provider
}

// New returns a Migrator. Its advisory lock is of the session, so there must be no pooler in
// transaction mode.
func New(pool *pgxpool.Pool, logger *slog.Logger) (*Migrator, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120)) // two minutes
	if err != nil {
		return nil, fmt.Errorf("migrations: lock: %w", err)
	}
	db := stdlib.OpenDBFromPool(pool)
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true), goose.WithSlog(logger),
		goose.WithAllowOutofOrder(true)) // newer migrations of the template are below a shop's own
	if err != nil {
		return nil, errors.Join(fmt.Errorf("migrations: %w", err), db.Close())
	}
	return &Migrator{pool: pool, provider: provider}, nil
}

// Close does not close the pool.
func (m *Migrator) Close() error { return m.provider.Close() }

// grantSQL leaves the roles that get the privileges of new tables (deploy/roles.sql) only those
// that the program uses, so that none of its processes can rewrite the audit trail, admit an
// expired key or change the record of migrations. Other roles and tables keep theirs.
const grantSQL = `
DO $$
DECLARE
    statement text;
BEGIN
    LOCK TABLE goose_db_version IN SHARE UPDATE EXCLUSIVE MODE; -- concurrent grants fail
    FOR statement IN
        SELECT DISTINCT format('REVOKE ALL ON %1$s FROM %2$s; GRANT %3$s ON %1$s TO %2$s', c.oid::regclass, grantee::regrole, needed)
          FROM (VALUES ('goose_db_version', 'SELECT'),
                       ('accounts', 'SELECT, INSERT'),
                       ('audit_records', 'SELECT, INSERT'),
                       ('expired_keys', 'SELECT, INSERT'),
                       ('api_keys', 'SELECT, INSERT, UPDATE'),
                       ('orders', 'SELECT, INSERT, UPDATE'),
                       ('refunds', 'SELECT, INSERT, UPDATE')) AS needs (name, needed)
          JOIN pg_class AS c ON c.relname = name
          JOIN pg_default_acl AS d ON d.defaclnamespace = c.relnamespace AND d.defaclrole = c.relowner
         CROSS JOIN aclexplode(d.defaclacl)
         WHERE c.relnamespace = current_schema()::regnamespace
           AND c.relowner = current_user::regrole
           AND privilege_type = 'INSERT'
           AND grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$`

// Up applies all pending migrations and returns their number.
func (m *Migrator) Up(ctx context.Context) (int, error) {
	results, err := m.provider.Up(ctx)
	if err == nil {
		_, err = m.pool.Exec(ctx, grantSQL)
	}
	if err != nil {
		return len(results), fmt.Errorf("migrate up: %w", err)
	}
	return len(results), nil
}

// Down rolls back the migration that was applied last, and returns its file name, or "".
func (m *Migrator) Down(ctx context.Context) (string, error) {
	result, err := m.provider.Down(ctx)
	if errors.Is(err, goose.ErrNoNextVersion) {
		return "", nil
	}
	if errors.Is(err, goose.ErrVersionNotFound) {
		err = errors.New("the database has migrations that this program does not know, so use the program that applied them")
	}
	if err != nil {
		return "", fmt.Errorf("migrate down: %w", err)
	}
	return result.Source.Path, nil
}

// Status has a line for each migration, and for each version of another program.
func (m *Migrator) Status(ctx context.Context) (lines []string, err error) {
	pending, unknown, err := compare(ctx, m.pool)
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
	for _, version := range unknown {
		lines = append(lines, fmt.Sprintf("applied  version %d, which this program does not know", version))
	}
	return lines, nil
}

// Pending returns the file names of this program's migrations that the database lacks. It needs
// only SELECT on goose's table. Versions that this program does not know are no error, because
// they are there while a newer program replaces this one.
func Pending(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	pending, _, err := compare(ctx, pool)
	return pending, err
}

// compare compares sets, because the highest version says nothing about the ones below it.
// Unlike goose, it creates no table, which the program's role must not do.
func compare(ctx context.Context, pool *pgxpool.Pool) (pending []string, unknown []int64, err error) {
	rows, _ := pool.Query(ctx, `
SELECT version_id
  FROM (SELECT DISTINCT ON (version_id) version_id, is_applied FROM goose_db_version ORDER BY version_id, id DESC) AS latest
 WHERE is_applied
   AND version_id > 0`) // CollectRows returns the error
	versions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if pg, ok := errors.AsType[*pgconn.PgError](err); err != nil && (!ok || pg.Code != "42P01") { // no such table
		return nil, nil, fmt.Errorf("migrations: applied versions: %w", err)
	}
	applied := make(map[int64]bool, len(versions))
	for _, version := range versions {
		applied[version] = true
	}
	names, err := fs.Glob(files, "*.sql")
	for _, name := range names {
		version, nameErr := goose.NumericComponent(name)
		err = errors.Join(err, nameErr)
		if !applied[version] {
			pending = append(pending, name)
		}
		delete(applied, version)
	}
	return pending, slices.Sorted(maps.Keys(applied)), err
}
