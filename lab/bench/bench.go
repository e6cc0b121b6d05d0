package main

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

type bench struct {
	options
	out      io.Writer
	folder   string // logs and PostgreSQL's data
	programs string
	postgres *embeddedpg.Server
	admin    *pgxpool.Pool
	systems  int
	windows  []window
}

func open(ctx context.Context, o options, out io.Writer) (*bench, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, out: out, programs: filepath.Dir(executable)}
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) start(ctx context.Context) error {
	cache, err := embeddedpg.CacheDir()
	if err != nil {
		return err
	}
	// A folder in memory would make COMMIT too fast. This one is on a disk.
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // the server's OS user needs access
		return err
	}
	if b.folder, err = os.MkdirTemp(cache, "bench-"); err != nil {
		return err
	}
	if err := os.Chmod(b.folder, 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	b.postgres, err = embeddedpg.Start(ctx, embeddedpg.Options{
		BinDir:   os.Getenv("PG_BIN"),
		DataDir:  filepath.Join(b.folder, "postgres"),
		Settings: durable(),
		Logger:   slog.New(slog.DiscardHandler),
		Notice:   func(line string) { fmt.Fprintln(b.out, line) },
	})
	if err != nil {
		return err
	}
	if b.admin, err = pgxpool.New(ctx, b.postgres.URL("postgres")); err != nil {
		return err
	}
	var version string
	if err := b.admin.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "PostgreSQL %s, durable; %s %s/%s, %d cores for everything\n",
		version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	return nil
}

func (b *bench) createDatabase(ctx context.Context, name string) (string, error) {
	_, err := b.admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	return b.postgres.URL(name), err
}

// wal returns the bytes of WAL written so far.
func (b *bench) wal(ctx context.Context) (int64, error) {
	var bytes int64
	err := b.admin.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&bytes)
	return bytes, err
}

func (b *bench) close() error {
	var err error
	if b.admin != nil {
		b.admin.Close()
	}
	if b.postgres != nil {
		err = errors.Join(err, b.postgres.Stop())
	}
	if b.folder != "" {
		err = errors.Join(err, os.RemoveAll(b.folder))
	}
	return err
}
