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
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true), goose.WithSlog(logger))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("migrations: %w", err), db.Close())
	}
	return &Migrator{pool: pool, provider: provider}, nil
}

// Close does not close the pool.
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

// Status has a line for each migration, and for the version of a newer program.
func (m *Migrator) Status(ctx context.Context) (lines []string, err error) {
	current, newest, err := Versions(ctx, m.pool)
	if err != nil {
		return nil, err
	}
	for _, s := range m.provider.ListSources() {
		state := "pending"
		if s.Version <= current {
			state = "applied"
		}
		lines = append(lines, state+"  "+s.Path)
	}
	if current > newest {
		lines = append(lines, fmt.Sprintf("applied  version %d of a newer program", current))
	}
	return lines, nil
}

// Versions returns the versions of the database and of this program. Unlike goose, it creates no
// table, which the program's role must not do.
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
