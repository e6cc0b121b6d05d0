package engine_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations"
)

// claiming finishes in its first step, once a hundred runs have found no key.
type claiming struct{ found *sync.WaitGroup }

func (claiming) Name() string { return "claiming" }

func (c claiming) Steps(*idempotency.Run) idempotency.Steps {
	c.found.Done()
	c.found.Wait()
	return idempotency.Steps{Start: func(context.Context, *idempotency.Tx) (idempotency.Transition, error) {
		return idempotency.Finish(idempotency.Response{Status: 200}), nil
	}}
}

// An operator reads in PostgreSQL's log which error a race causes, and no other one.
func TestServerLog_race(t *testing.T) {
	t.Parallel()
	const duplicates = 100
	discard := slog.New(slog.DiscardHandler)
	server, err := embeddedpg.Start(t.Context(), embeddedpg.Options{BinDir: os.Getenv("PG_BIN"), Logger: discard})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	config, err := pgxpool.ParseConfig(server.URL("postgres"))
	require.NoError(t, err)
	postgres.Configure(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	migrator, err := migrations.New(pool, discard)
	require.NoError(t, err)
	defer migrator.Close()
	_, err = migrator.Up(t.Context())
	require.NoError(t, err)
	engine, err := idempotency.New(pool, idempotency.Config{LeaseDuration: leaseDuration, Clock: time.Now, Logger: discard})
	require.NoError(t, err)

	req := idempotency.Request{
		AccountID: idempotencytest.Account(t, pool), Key: "a-race-of-100-duplicates", Method: "POST", Path: "/v1/things", Params: []byte("{}"),
	}
	var found, done sync.WaitGroup
	found.Add(duplicates)
	for range duplicates {
		done.Go(func() { _, _ = engine.Do(t.Context(), req, claiming{&found}) })
	}
	done.Wait()

	log, err := os.ReadFile(filepath.Join(server.Dir(), "server.log"))
	require.NoError(t, err)
	require.NotContains(t, string(log), "division by zero")
	require.Equal(t, duplicates-1, strings.Count(string(log), "ERROR:  claim_conflict"))
	require.Equal(t, duplicates-1, strings.Count(string(log), "ERROR:"), string(log))
}
