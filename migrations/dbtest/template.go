package dbtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/migrations"
)

// templateLock is the advisory lock for the creation of a template by concurrent test
// binaries.
const templateLock = 7_163_544_026

func (s *server) makeTemplate() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	hash, err := hashFiles(migrations.FS())
	if err != nil {
		return "", err
	}
	name := "tmpl_" + hash

	lock, err := s.admin.Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer lock.Release()
	if _, err := lock.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(templateLock)); err != nil {
		return "", err
	}
	err = s.makeTemplateLocked(ctx, name)
	_, unlockErr := lock.Exec(ctx, "SELECT pg_advisory_unlock($1)", int64(templateLock))
	return name, errors.Join(err, unlockErr)
}

func (s *server) makeTemplateLocked(ctx context.Context, name string) error {
	var exists bool
	err := s.admin.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err != nil || exists {
		return err
	}
	// It is renamed when complete.
	building := name + "_build"
	if err := s.onAllNodes(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", quote(building))); err != nil {
		return err
	}
	if err := s.create(ctx, building, "template0"); err != nil {
		return err
	}
	if err := s.joinNodes(ctx, building); err != nil {
		return err
	}
	if err := s.migrate(ctx, building); err != nil {
		return err
	}
	// A connection to a template would prevent copies.
	if err := s.onAllNodes(ctx, fmt.Sprintf("ALTER DATABASE %s WITH ALLOW_CONNECTIONS false", quote(building))); err != nil {
		return err
	}
	if err := s.disconnect(ctx, building); err != nil {
		return err
	}
	return s.onAllNodes(ctx, fmt.Sprintf("ALTER DATABASE %s RENAME TO %s", quote(building), quote(name)))
}

func (s *server) migrate(ctx context.Context, database string) error {
	config, err := s.direct(database)
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := migrations.New(pool, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	_, err = migrator.Up(ctx)
	if err == nil && len(s.workers) > 0 {
		_, err = migrator.Distribute(ctx)
	}
	return errors.Join(err, migrator.Close())
}

func hashFiles(files fs.FS) (string, error) {
	hash := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%s %d\n", path, len(content))
		hash.Write(content)
		return nil
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}
