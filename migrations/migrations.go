package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

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

// Migrator applies the migrations to one database.
type Migrator struct {
	pool     *pgxpool.Pool
	provider *goose.Provider
}

// New returns a Migrator on pool, which stays open. Migrations hold a session-level
// advisory lock, so the pool must connect to PostgreSQL directly, not through a pooler
// in transaction mode.
func New(pool *pgxpool.Pool, logger *slog.Logger) (*Migrator, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120)) // poll each second, two minutes at most
	if err != nil {
		return nil, fmt.Errorf("migrations: lock: %w", err)
	}
	db := stdlib.OpenDBFromPool(pool)
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true), goose.WithSlog(logger))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("migrations: %w", err), db.Close())
	}
	return &Migrator{pool: pool, provider: provider}, nil
}

// Close releases the Migrator, not its pool.
func (m *Migrator) Close() error { return m.provider.Close() }

// Up applies all pending migrations and returns their number.
func (m *Migrator) Up(ctx context.Context) (int, error) {
	results, err := m.provider.Up(ctx)
	if err != nil {
		return len(results), fmt.Errorf("migrate up: %w", err)
	}
	return len(results), nil
}

// Down rolls the newest migration back and returns its file name, or "".
func (m *Migrator) Down(ctx context.Context) (string, error) {
	result, err := m.provider.Down(ctx)
	if errors.Is(err, goose.ErrNoNextVersion) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("migrate down: %w", err)
	}
	return result.Source.Path, nil
}

// Status is a migration file and whether it is applied.
type Status struct {
	Name    string
	Applied bool
}

// Status lists the migrations, oldest first. If a newer program has migrated the
// database, the last entry is its version.
func (m *Migrator) Status(ctx context.Context) ([]Status, error) {
	current, newest, err := Versions(ctx, m.pool)
	if err != nil {
		return nil, err
	}
	var status []Status
	for _, s := range m.provider.ListSources() {
		status = append(status, Status{Name: s.Path, Applied: s.Version <= current})
	}
	if current > newest {
		status = append(status, Status{Name: fmt.Sprintf("version %d of a newer program", current), Applied: true})
	}
	return status, nil
}

// Versions returns the version of the database, which is 0 before the first migration, and
// that of this program. If a newer program has migrated the database, current is greater:
// during a deployment both programs run. It changes nothing, unlike goose, which would
// create its table: the role of the program must not create tables, and if a superuser
// created this one, the owner of the others could not migrate.
func Versions(ctx context.Context, pool *pgxpool.Pool) (current, newest int64, err error) {
	names, err := fs.Glob(files, "*.sql") // sorted
	if err == nil {
		newest, err = goose.NumericComponent(names[len(names)-1])
	}
	if err == nil {
		err = pool.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version").Scan(&current)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42P01" { // no such table
		err = nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("migrations: version: %w", err)
	}
	return current, newest, nil
}
