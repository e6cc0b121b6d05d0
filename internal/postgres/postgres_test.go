package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

func TestCheckSession(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, postgres.CheckSession(t.Context(), dbtest.New(t)), "no idle_in_transaction_session_timeout, lock_timeout, statement_timeout:")
	for name, test := range map[string]struct{ value, missing string }{
		"application_name":                    {"mine", ""},
		"lock_timeout":                        {"", "lock_timeout"}, // a pooler may drop one of them
		"statement_timeout":                   {"", "statement_timeout"},
		"idle_in_transaction_session_timeout": {"", "idle_in_transaction_session_timeout"},
		"default_transaction_isolation":       {"serializable", "default_transaction_isolation = read committed"},
		"client_encoding":                     {"LATIN1", "client_encoding = UTF8"},
	} {
		pool := idempotencytest.NewPool(t, func(config *pgxpool.Config) {
			if config.ConnConfig.RuntimeParams[name] = test.value; test.value == "" {
				delete(config.ConnConfig.RuntimeParams, name)
			}
		})
		err := postgres.CheckSession(t.Context(), pool)
		if test.missing == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "no "+test.missing+":")
	}
}

// PGCLIENTENCODING does not matter to the driver, but the role's or the database's setting would:
// PostgreSQL would convert our UTF-8 as if it were LATIN1, and store other letters.
func TestConfigure_encodingOfTheDatabase(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	_, err := pool.Exec(t.Context(), `
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET client_encoding = latin1', current_database());
END $$`)
	require.NoError(t, err)
	pool.Reset()
	require.NoError(t, postgres.CheckSession(t.Context(), pool))
	var length int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT char_length($1::text)", "Zoë").Scan(&length))
	require.Equal(t, 3, length)
}

// An abandoned statement is not cancelled at the server (R22, three outcomes of COMMIT), and its connection is
// closed.
func TestConfigure_neverCancels(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	pool := idempotencytest.NewPool(t, func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["statement_timeout"] = "2000"
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return dial(ctx, network, address)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	started := func() bool {
		var running bool
		err := pool.QueryRow(t.Context(), `
SELECT EXISTS (
    SELECT
      FROM pg_stat_activity
     WHERE query LIKE 'SELECT pg_sleep%'
       AND datname = current_database()
)`).Scan(&running)
		return err == nil && running
	}
	done := make(chan error)
	go func() {
		_, err := pool.Exec(ctx, "SELECT pg_sleep(60)")
		done <- err
	}()
	require.Eventually(t, started, 10*time.Second, 10*time.Millisecond)
	cancel()
	err := <-done // of the cancelled context, or of statement_timeout if that came first
	require.Error(t, err)
	require.Eventually(t, func() bool { return pool.Stat().TotalConns() == pool.Stat().IdleConns() }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, pool.Stat().NewConnsCount(), dials.Load(), "a request to cancel would dial, too")
}

// limited creates a role that may open some sessions, and returns its pool of ten.
func limited(t *testing.T, sessions int) *pgxpool.Pool {
	t.Helper()
	owner := dbtest.New(t)
	role := "limited_" + owner.Config().ConnConfig.Database
	_, err := owner.Exec(t.Context(), fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'limited' CONNECTION LIMIT %d", role, sessions))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := owner.Exec(context.Background(), "DROP ROLE "+role)
		require.NoError(t, err)
	})
	config := owner.Config()
	postgres.Configure(config)
	config.ConnConfig.User, config.ConnConfig.Password, config.MaxConns = role, "limited", 10
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// A role may open fewer sessions than its pool. Each query waits for one of them, and the server gets
// few further attempts.
func TestQuery_fewerSessionsThanThePool(t *testing.T) {
	t.Parallel()
	pool := limited(t, 2)
	require.NoError(t, pool.Ping(t.Context()))
	var group errgroup.Group
	for range 40 {
		group.Go(func() error {
			_, err := pgx.CollectExactlyOneRow(postgres.Query(t.Context(), pool, "SELECT pg_sleep(0.01)::text"), pgx.RowTo[string])
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, 2, pool.Stat().TotalConns())
}

// Without any session, there is none to wait for.
func TestQuery_noSession(t *testing.T) {
	t.Parallel()
	pool := limited(t, 1)
	other, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	require.NoError(t, err)
	_, err = postgres.Collect(t.Context(), pool, "read", pgx.RowTo[int], "SELECT 1")
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	require.ErrorContains(t, err, "too many connections for role")
	require.NoError(t, other.Close(t.Context()))
}

// A lost session of the monitor may be the end of a server, so the pool connects again. The pool
// of one connection is busy all the time.
func TestMonitor(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
	other := idempotencytest.NewPool(t)
	monitor := postgres.NewMonitor(pool, slog.New(slog.DiscardHandler))
	var resets atomic.Int64
	monitor.OnReset(func() { resets.Add(1) })
	require.EqualError(t, monitor.Err(), "the database was not checked yet")

	var session atomic.Uint32
	var failure atomic.Pointer[error]
	stop, err := monitor.Start(t.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		session.Store(conn.Conn().PgConn().PID())
		if failure := failure.Load(); failure != nil {
			return *failure
		}
		return nil
	})
	require.NoError(t, err)
	defer stop()
	require.NoError(t, monitor.Err())
	require.EqualValues(t, 1, resets.Load())

	busy, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	before := busy.Conn().PgConn().PID()
	first := session.Load()
	_, err = other.Exec(t.Context(), "SELECT pg_terminate_backend($1)", first)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return monitor.Err() != nil }, 10*time.Second, time.Millisecond,
		"nothing proves that the only session is on the current server")
	require.Eventually(t, func() bool { return resets.Load() == 2 }, 10*time.Second, time.Millisecond)
	busy.Release()
	require.Eventually(t, func() bool { return monitor.Err() == nil }, 10*time.Second, time.Millisecond)
	require.NotEqual(t, first, session.Load())

	busy, err = pool.Acquire(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before, busy.Conn().PgConn().PID())
	for _, want := range []error{errors.New("a migration is missing"), nil} {
		failure.Store(&want)
		require.Eventually(t, func() bool { return monitor.Err() == want }, 10*time.Second, time.Millisecond) //nolint:errorlint // identity
	}
	busy.Release()
	require.EqualValues(t, 2, resets.Load())
}

// The state of a session is an outage, after which the same request may be sent again. A mistake of the
// program is none, because clients would wait for its end.
func TestTranslate(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "CREATE TABLE changed AS SELECT 1 AS n")
	require.NoError(t, err)
	read := func() error {
		var n int64
		return conn.QueryRow(t.Context(), "SELECT n FROM changed").Scan(&n)
	}
	require.NoError(t, read())
	_, err = pool.Exec(t.Context(), "ALTER TABLE changed ALTER n TYPE bigint")
	require.NoError(t, err)
	require.ErrorIs(t, postgres.Translate(read()), postgres.ErrUnavailable, "after such a migration, each prepared statement fails once")
	require.NoError(t, read())

	// Without default_query_exec_mode, a pooler in transaction mode gives a statement to a session that has
	// not prepared it, or already has one of that name.
	_, err = conn.Exec(t.Context(), "DEALLOCATE ALL", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	_, errTaken := conn.Exec(t.Context(), "PREPARE taken AS SELECT 1; PREPARE taken AS SELECT 1", pgx.QueryExecModeSimpleProtocol)
	for _, err := range []error{read(), errTaken} {
		require.ErrorIs(t, postgres.Translate(err), postgres.ErrUnavailable)
		require.ErrorContains(t, postgres.Translate(err), "set default_query_exec_mode=cache_describe in DATABASE_URL")
	}

	var n int
	err = pool.QueryRow(t.Context(), "SELECT NULL::int").Scan(&n)
	require.ErrorContains(t, err, "cannot scan NULL")
	require.NotErrorIs(t, postgres.Translate(err), postgres.ErrUnavailable)
}
