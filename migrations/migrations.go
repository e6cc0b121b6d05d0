package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// ErrOutdated means that the database lacks migrations of this program.
var ErrOutdated = errors.New("the database schema is out of date: run `orders migrate up`")

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
	list, err := m.provider.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate status: %w", err)
	}
	status := make([]Status, len(list))
	for i, s := range list {
		status[i] = Status{Name: s.Source.Path, Applied: s.State == goose.StateApplied}
	}
	newer, err := m.Check(ctx)
	switch {
	case errors.Is(err, ErrOutdated):
		err = nil
	case newer > 0:
		status = append(status, Status{Name: fmt.Sprintf("version %d of a newer program", newer), Applied: true})
	}
	return status, err
}

// Check returns ErrOutdated if the database lacks a migration. If a newer program has
// migrated the database, it returns the version: during a deployment both programs run.
func (m *Migrator) Check(ctx context.Context) (newer int64, err error) {
	current, target, err := m.provider.GetVersions(ctx)
	switch {
	case err != nil:
		return 0, fmt.Errorf("migrate check: %w", err)
	case current < target:
		return 0, fmt.Errorf("%w (at %d, need %d)", ErrOutdated, current, target)
	case current > target:
		return current, nil
	default:
		return 0, nil
	}
}
