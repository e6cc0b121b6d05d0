package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

func TestCheckSession(t *testing.T) {
	t.Parallel()
	require.NoError(t, postgres.CheckSession(t.Context(), idempotencytest.NewPool(t)))

	err := postgres.CheckSession(t.Context(), dbtest.New(t))
	require.ErrorContains(t, err, "no idle_in_transaction_session_timeout, lock_timeout, statement_timeout:")

	// A pooler may drop one of them.
	for _, name := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
		pool := idempotencytest.NewPool(t, func(config *pgxpool.Config) { delete(config.ConnConfig.RuntimeParams, name) })
		require.ErrorContains(t, postgres.CheckSession(t.Context(), pool), "no "+name+":")
	}

	for name, required := range map[string]string{
		"default_transaction_isolation": "read committed",
		"client_encoding":               "UTF8",
		"standard_conforming_strings":   "on",
		"session_replication_role":      "origin",
	} {
		wrong := map[string]string{"client_encoding": "LATIN1", "session_replication_role": "replica"}
		pool := idempotencytest.NewPool(t, func(config *pgxpool.Config) {
			config.ConnConfig.RuntimeParams[name] = cmp.Or(wrong[name], map[bool]string{true: "off", false: "serializable"}[required == "on"])
		})
		require.ErrorContains(t, postgres.CheckSession(t.Context(), pool), "no "+name+" = "+required+":")
	}

	pool := idempotencytest.NewPool(t)
	pool.Close()
	require.Error(t, postgres.CheckSession(t.Context(), pool))
}

func TestConfigure_settingsOfTheConnectionString(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("postgres://localhost/orders?lock_timeout=500&application_name=mine")
	require.NoError(t, err)
	postgres.Configure(config)
	require.Equal(t, map[string]string{
		"application_name":                    "mine",
		"client_encoding":                     "UTF8",
		"standard_conforming_strings":         "on",
		"lock_timeout":                        "500",
		"statement_timeout":                   "10000",
		"idle_in_transaction_session_timeout": "5000",
	}, config.ConnConfig.RuntimeParams)
}

// A hosted pooler may reject startup parameters, so the role has them.
func TestConfigure_parametersOfTheRole(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("postgres://localhost/orders?lock_timeout=&statement_timeout=&idle_in_transaction_session_timeout=" +
		"&client_encoding=&standard_conforming_strings=&application_name=")
	require.NoError(t, err)
	postgres.Configure(config)
	require.Empty(t, config.ConnConfig.RuntimeParams)
}

// PGCLIENTENCODING does not matter to the driver, but the role's or the database's setting would:
// PostgreSQL would convert our UTF-8 as if it were LATIN1, and store other letters.
func TestConfigure_encodingOfTheDatabase(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	_, err := pool.Exec(t.Context(), `
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET client_encoding = latin1', current_database());
    EXECUTE format('ALTER DATABASE %I SET standard_conforming_strings = off', current_database());
END $$`)
	require.NoError(t, err)
	pool.Reset()
	require.NoError(t, postgres.CheckSession(t.Context(), pool))
	var length int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT char_length($1::text)", "Zoë").Scan(&length))
	require.Equal(t, 3, length)
}

func TestConfigure_hooks(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("postgres://localhost/orders")
	require.NoError(t, err)
	dials := 0
	config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		dials++
		return nil, errors.New("no server")
	}
	postgres.Configure(config)
	for want, pg := range map[bool]*pgconn.PgError{true: {Code: "23505"}, false: {Code: postgres.ReadOnlyTransaction}} {
		require.Equal(t, want, config.ConnConfig.OnPgError(nil, pg), "whether the connection is kept")
	}
	require.False(t, config.ConnConfig.OnPgError(nil, &pgconn.PgError{Severity: "FATAL"}))

	conn := config.ConnConfig.Copy()
	require.NoError(t, config.BeforeConnect(t.Context(), conn))
	_, err = conn.DialFunc(t.Context(), "tcp", "localhost:5432")
	require.ErrorContains(t, err, "no server")
	require.NoError(t, conn.AfterConnect(t.Context(), nil))
	_, err = conn.DialFunc(t.Context(), "tcp", "localhost:5432")
	require.ErrorContains(t, err, "not cancelled", "a connection that stands dials no more")
	require.Equal(t, 1, dials)
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
