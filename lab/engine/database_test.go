package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/migrations"
	"example.com/orders-api/migrations/dbtest"
)

// After a connection that breaks before COMMIT was sent, the request is repeated, and each effect is recorded once.
func TestDatabase_connectionLost(t *testing.T) {
	t.Parallel()
	endOwnSession := func(ctx context.Context, tx *idempotency.Tx, _ *fixture) error {
		return tx.QueryRow(ctx, "SELECT pg_terminate_backend(pg_backend_pid())", nil, new(bool))
	}
	// The server ends the session between two statements.
	idleTooLong := func(ctx context.Context, tx *idempotency.Tx, f *fixture) error {
		var pid int
		if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()", nil, &pid); err != nil {
			return err
		}
		require.Eventually(f.t, func() bool {
			var alive bool
			err := f.pool.QueryRow(f.t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid).Scan(&alive)
			return err == nil && !alive
		}, waitFor, tick)
		return nil
	}
	for _, point := range []idempotency.RecoveryPoint{idempotency.Started, paid} {
		for name, lose := range map[string]func(context.Context, *idempotency.Tx, *fixture) error{
			"ended by an operator": endOwnSession,
			"idle in transaction":  idleTooLong,
		} {
			t.Run(fmt.Sprintf("%s at %s", name, point), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, connections(2), sessionSetting("idle_in_transaction_session_timeout", "50"))
				attempts := 0
				op := &threeSteps{before: func(ctx context.Context, tx *idempotency.Tx, at idempotency.RecoveryPoint) error {
					if at != point {
						return nil
					}
					if attempts++; attempts > 1 {
						return nil
					}
					return lose(ctx, tx, f)
				}}
				req := f.request()
				_, err := f.do(req, op)
				require.ErrorIs(t, err, postgres.ErrUnavailable)
				f.mustDo(req, op)
				require.Equal(t, 2, attempts)
				require.Equal(t, onceEach, f.effects(req))
			})
		}
	}
}

// Connections that the server has closed are replaced.
func TestDatabase_restarted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := pgx.Connect(t.Context(), dbtest.URL(f.pool))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	drop := func(context.Context) error {
		_, err := conn.Exec(t.Context(), `
SELECT pg_terminate_backend(pid, 5000)
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid()`)
		return err
	}
	require.NoError(t, drop(t.Context()))
	f.requireDoneWithin(3, &threeSteps{reserve: once(drop), pay: once(drop)})
}

// once returns a call that has its effect the first time.
func once(call func(context.Context) error) func(context.Context) error {
	done := false
	return func(ctx context.Context) error {
		if done {
			return nil
		}
		done = true
		return call(ctx)
	}
}

// requireDoneWithin repeats a request as a client does, after at most this many 503.
func (f *fixture) requireDoneWithin(failures int, op *threeSteps) {
	f.t.Helper()
	req := f.request()
	_, err := f.do(req, op)
	for ; err != nil && failures > 0; failures-- {
		require.ErrorIs(f.t, err, postgres.ErrUnavailable)
		_, err = f.do(req, op)
	}
	require.NoError(f.t, err)
	require.Equal(f.t, onceEach, f.effects(req))
}

// A read-only session is on a demoted primary. The next one connects to the new primary.
func TestDatabase_readOnlySession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	demote := func(context.Context) error {
		_, err := f.pool.Exec(t.Context(), "SET default_transaction_read_only = on")
		return err
	}
	require.NoError(t, demote(t.Context()))
	f.requireDoneWithin(3, &threeSteps{reserve: once(demote), pay: once(demote)})
}

// insertKeys inserts keys that ran last an hour ago.
func (f *fixture) insertKeys(n int, columns, values string) {
	f.t.Helper()
	_, err := f.pool.Exec(f.t.Context(), `
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, fingerprint,
    lease_token, runs, updated_at, created_at, recovery_point, `+columns+`
)
SELECT gen_random_uuid(), $1, 'one-of-many-' || gen_random_uuid(), 'things', 'POST', '/v1/things', '{}', decode(repeat('01', 33), 'hex'),
       gen_random_uuid(), 1, at, at, `+values+`
  FROM generate_series(1, $2) AS i,
       LATERAL (SELECT now() - interval '1 hour' + i * interval '1 millisecond') AS t (at)`, f.account, n)
	require.NoError(f.t, err)
}

// All generic plans use an index, and PostgreSQL switches to them, except in the lists of
// the background commands, which are rare.
func TestPlans_useIndexes(t *testing.T) {
	t.Parallel()
	const executions = 10
	f, op, ctx := newFixture(t), &threeSteps{before: read}, t.Context()
	f.insertKeys(10_000, "finished_at, response_code, response_headers, response_body", "'finished', at, 200, '{}', ''")
	f.insertKeys(1_000, "action_required_at", "'paid', now()")
	_, err := f.pool.Exec(ctx, "ANALYZE idempotency_keys, accounts")
	require.NoError(t, err)
	f.engine.Register(op)
	completer := idempotency.NewCompleter(f.engine, idempotency.CompleterConfig{
		Grace: 5 * time.Minute, ActionTimeout: 23 * time.Hour, Batch: 40, Concurrency: 1,
	})
	for range executions {
		req := f.request()
		f.mustDo(req, op) // claim, fence, advance, finish
		require.True(t, f.mustDo(req, op).Replayed)
		_, _, err = f.engine.Lookup(ctx, req.AccountID, f.request().Key) // find, expired
		require.ErrorIs(t, err, idempotency.ErrNotFound)
		abandoned := f.request()
		idempotencytest.PutKey(t, f.pool, abandoned, op.Name(), paid)
		f.update(abandoned, "updated_at = now() - interval '1 hour'")
		pass, err := completer.RunOnce(ctx) // list, claim, takeover
		require.NoError(t, err)
		require.Equal(t, idempotency.CompleterResult{Completed: 1}, pass)
		_, err = f.do(f.request(), &threeSteps{reserve: func(context.Context) error { return errNoResponse }}) // release
		require.ErrorIs(t, err, errNoResponse)
	}
	require.True(t, f.engine.AwaitChange(ctx, f.finishedKey(op)))
	_, err = f.engine.Unfinished(ctx)
	require.NoError(t, err)
	_, err = f.engine.Find(ctx, []uuid.UUID{f.account}, "an-unused-client-key")
	require.NoError(t, err)
	_, err = idempotency.ReadStats(ctx, f.pool)
	require.NoError(t, err)
	_, err = f.engine.CountReapable(ctx, time.Hour)
	require.NoError(t, err)
	deleted, err := f.engine.Reap(ctx, time.Hour, 100) // list, delete
	require.NoError(t, err)
	require.Positive(t, deleted)

	plans := labtest.Plans(t, f.pool)
	var all string
	for _, plan := range plans {
		all += plan.Text
		require.NotContains(t, plan.Text, "Seq Scan on idempotency_keys", plan.Statement)
		if plan.Custom+plan.Generic >= executions && !strings.Contains(plan.Statement, "LIMIT") {
			require.NotZero(t, plan.Generic, plan.Statement)
		}
	}
	require.Greater(t, len(plans), 20)
	for _, index := range []string{"pkey", "unfinished_idx", "finished_idx"} {
		require.Contains(t, all, "Index Scan using idempotency_keys_"+index)
	}
}

func (f *fixture) finishedKey(op idempotency.Operation) idempotency.StoredKey {
	f.t.Helper()
	req := f.request()
	f.mustDo(req, op)
	status, _, err := f.engine.Lookup(f.t.Context(), f.account, req.Key)
	require.NoError(f.t, err)
	return status
}

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
