package dbtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// poolSize keeps hundreds of parallel tests below the server's limit of 300
	// connections, and is enough for a test that races.
	poolSize = 4

	// patience bounds what takes milliseconds, on a machine that is busy.
	patience = time.Minute

	// closePatience bounds the wait for connections that a test has not returned.
	closePatience = 10 * time.Second
)

// New returns a pool, of at most 4 connections, on a database of the test's own
// that has the whole schema and no rows. The functions may change the pool's
// configuration before it opens.
//
// After the test the pool is closed and the database dropped. If the test has
// failed the database is kept, and the log says how to look at it.
func New(t testing.TB, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	s := sharedServer(t)
	template, err := s.template()
	if err != nil {
		t.Fatalf("dbtest: template database: %v", err)
	}
	return s.newDatabase(t, template, configure)
}

// Empty is like New, but its database lacks the schema: for tests that apply the
// migrations themselves.
func Empty(t testing.TB, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return sharedServer(t).newDatabase(t, "template0", configure)
}

// URL returns the connection string of a pool's database, for programs that a
// test starts.
func URL(pool *pgxpool.Pool) string { return pool.Config().ConnString() }

func (s *server) newDatabase(t testing.TB, template string, configure []func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	name := fmt.Sprintf("t_%d_%s", os.Getpid(), strings.ToLower(rand.Text()))
	if err := s.create(ctx, name, template); err != nil {
		t.Fatalf("dbtest: create database: %v", err)
	}
	// Registered before the pool's own clean-up, and so run after it.
	t.Cleanup(func() { s.dropOrKeep(t, name) })

	config, err := s.config(name)
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	for _, change := range configure {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatalf("dbtest: open pool: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	if err := pool.Ping(ctx); err != nil {
		t.Fatalf("dbtest: connect: %v", err)
	}
	return pool
}

// closePool closes the pool, and fails the test when that waits for connections
// which the test has taken and not returned.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
		t.Errorf("dbtest: %d connections were not returned to the pool", pool.Stat().AcquiredConns())
	}
}

// create makes a database. FILE_COPY takes half the time of the default here: it
// needs a checkpoint, which costs nothing when nothing is synced.
func (s *server) create(ctx context.Context, name, template string) error {
	_, err := s.admin.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s STRATEGY FILE_COPY", quote(name), quote(template)))
	return err
}

func (s *server) dropOrKeep(t testing.TB, name string) {
	t.Helper()
	if t.Failed() {
		t.Log(s.keep(name))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.admin.Exec(ctx, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", quote(name))); err != nil {
		t.Errorf("dbtest: drop database: %v", err)
	}
}

// quote makes a name an SQL identifier.
func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
