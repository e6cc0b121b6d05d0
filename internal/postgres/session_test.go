package postgres_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

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

// The connection string may set a parameter, and omit one that a hosted pooler rejects, because the role has it.
func TestConfigure_settingsOfTheConnectionString(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("postgres://localhost/orders?lock_timeout=500&application_name=mine&statement_timeout=")
	require.NoError(t, err)
	postgres.Configure(config)
	require.Equal(t, map[string]string{
		"application_name":                    "mine",
		"client_encoding":                     "UTF8",
		"lock_timeout":                        "500",
		"idle_in_transaction_session_timeout": "5000",
	}, config.ConnConfig.RuntimeParams)
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
