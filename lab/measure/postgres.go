package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/embeddedpg"
)

// durable returns PostgreSQL's defaults for durable commits. The sizes prevent
// checkpoints within a window.
func durable() map[string]string {
	return map[string]string{
		"fsync":              "on",
		"synchronous_commit": "on",
		"full_page_writes":   "on",
		"shared_buffers":     "512MB",
		"max_wal_size":       "4GB",
	}
}

// PostgreSQL is a private server with durable settings. Folder also has room for logs.
type PostgreSQL struct {
	*embeddedpg.Server
	Folder string

	admin *pgxpool.Pool
}

// Start starts the server in a new folder, and prints its version.
func Start(ctx context.Context, out io.Writer) (*PostgreSQL, error) {
	p := &PostgreSQL{}
	if err := p.start(ctx, out); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *PostgreSQL) start(ctx context.Context, out io.Writer) error {
	cache, err := embeddedpg.CacheDir()
	if err != nil {
		return err
	}
	// A folder in memory would make COMMIT too fast. This one is on a disk.
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // the server's OS user needs access
		return err
	}
	if p.Folder, err = os.MkdirTemp(cache, "bench-"); err != nil {
		return err
	}
	if err := os.Chmod(p.Folder, 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	p.Server, err = embeddedpg.Start(ctx, embeddedpg.Options{
		BinDir:   os.Getenv("PG_BIN"),
		DataDir:  filepath.Join(p.Folder, "postgres"),
		Settings: durable(),
		Logger:   slog.New(slog.DiscardHandler),
		Notice:   func(line string) { fmt.Fprintln(out, line) },
	})
	if err != nil {
		return err
	}
	if p.admin, err = pgxpool.New(ctx, p.URL("postgres")); err != nil {
		return err
	}
	var version string
	if err := p.admin.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return err
	}
	fmt.Fprintf(out, "PostgreSQL %s, durable; %s %s/%s, %d cores for everything\n",
		version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	return nil
}

// Create creates a database and returns its URL.
func (p *PostgreSQL) Create(ctx context.Context, name string) (string, error) {
	_, err := p.admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	return p.URL(name), err
}

// WAL returns the bytes of WAL written so far.
func (p *PostgreSQL) WAL(ctx context.Context) (int64, error) {
	var bytes int64
	err := p.admin.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&bytes)
	return bytes, err
}

// Close stops the server and removes the folder.
func (p *PostgreSQL) Close() error {
	var err error
	if p.admin != nil {
		p.admin.Close()
	}
	if p.Server != nil {
		err = errors.Join(err, p.Stop())
	}
	if p.Folder != "" {
		err = errors.Join(err, os.RemoveAll(p.Folder))
	}
	return err
}
