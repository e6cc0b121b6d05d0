// Package dbtest gives each test its own PostgreSQL database with the schema of this
// module: pool := dbtest.New(t).
//
// The first call in a test binary starts a private server, with the programs in PG_BIN, and
// creates a template to copy. With make test, all test binaries share one such server, and
// DBTEST_SERVER has its address. DATABASE_URL names another server, and DBTEST_POOLER_URL its pooler.
package dbtest

import (
	"cmp"
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
	poolSize         = 4           // hundreds of tests share the server's 300 connections
	operationTimeout = time.Minute // on an idle machine, it takes milliseconds
	closeTimeout     = 10 * time.Second
)

// New returns a pool on a new database with the schema. The functions may change the pool's
// configuration. The database is dropped after the test.
func New(t testing.TB, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	s := sharedServer(t)
	template, err := s.template()
	if err != nil {
		t.Fatalf("dbtest: template database: %v", err)
	}
	return s.newDatabase(t, template, configure)
}

// Empty is like New, without the schema.
func Empty(t testing.TB, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return sharedServer(t).newDatabase(t, "template0", configure)
}

// URL returns the connection string of a pool's database.
func URL(pool *pgxpool.Pool) string { return pool.Config().ConnString() }

func (s *server) newDatabase(t testing.TB, template string, configure []func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), operationTimeout)
	defer cancel()
	name := fmt.Sprintf("t_%d_%s", os.Getpid(), strings.ToLower(rand.Text()))
	if err := s.create(ctx, name, template); err != nil {
		t.Fatalf("dbtest: create database: %v", err)
	}
	t.Cleanup(func() { s.drop(t, name) })

	pool, err := connect(ctx, cmp.Or(s.pooled, s.url), name, configure...)
	if err != nil {
		t.Fatalf("dbtest: open pool: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	if err := pool.Ping(ctx); err != nil {
		t.Fatalf("dbtest: connect: %v", err)
	}
	return pool
}

func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
		t.Errorf("dbtest: %d connections were not returned to the pool", pool.Stat().AcquiredConns())
	}
}

// create takes half the time with FILE_COPY, whose checkpoint costs nothing without fsync.
func (s *server) create(ctx context.Context, name, template string) error {
	return s.exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s STRATEGY FILE_COPY", quote(name), quote(template)))
}

func (s *server) drop(t testing.TB, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	if err := s.exec(ctx, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", quote(name))); err != nil {
		t.Errorf("dbtest: drop database: %v", err)
	}
}

// exec executes an administrative statement.
func (s *server) exec(ctx context.Context, statement string) error {
	_, err := s.admin.Exec(ctx, statement)
	return err
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
