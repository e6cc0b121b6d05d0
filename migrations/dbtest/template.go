package dbtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"example.com/orders-api/migrations"
)

// makeTemplate returns the name of the template. Concurrent test binaries create it under
// an advisory lock.
func (s *server) makeTemplate() (string, error) {
	const lock = 7_163_544_026
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	name, err := templateName(migrations.FS())
	if err != nil {
		return "", err
	}
	conn, err := s.admin.Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(lock)); err != nil {
		return "", err
	}
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err == nil && !exists {
		err = s.build(ctx, name)
	}
	_, unlockErr := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", int64(lock))
	return name, errors.Join(err, unlockErr)
}

// build creates the template under another name, and renames it when it is complete.
func (s *server) build(ctx context.Context, name string) error {
	building := name + "_build"
	if err := s.exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", quote(building))); err != nil {
		return err
	}
	if err := s.create(ctx, building, "template0"); err != nil {
		return err
	}
	if err := s.migrate(ctx, building); err != nil {
		return err
	}
	// A connection to a template would prevent copies.
	if err := s.exec(ctx, fmt.Sprintf("ALTER DATABASE %s WITH ALLOW_CONNECTIONS false", quote(building))); err != nil {
		return err
	}
	return s.exec(ctx, fmt.Sprintf("ALTER DATABASE %s RENAME TO %s", quote(building), quote(name)))
}

func (s *server) migrate(ctx context.Context, database string) error {
	pool, err := connect(ctx, s.url, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := migrations.New(pool, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	_, err = migrator.Up(ctx)
	return errors.Join(err, migrator.Close())
}

func templateName(files fs.FS) (string, error) {
	names, err := fs.Glob(files, "*.sql")
	hash := sha256.New()
	for _, name := range names {
		content, readErr := fs.ReadFile(files, name)
		err = errors.Join(err, readErr)
		fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
	}
	return "tmpl_" + hex.EncodeToString(hash.Sum(nil)[:8]), err
}
