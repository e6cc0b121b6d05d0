package proxytest_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/lab/engine/proxytest"
	"example.com/orders-api/migrations/dbtest"
)

// The name of a fault says whether the server has committed.
func TestProxy_faults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		fault     proxytest.Fault
		committed bool
		code      string // of the server's error or warning, if any
	}{
		{"cut before", proxytest.CutBefore, false, ""},
		{"cut after", proxytest.CutAfter, true, ""},
		{"fatal before", proxytest.FatalBefore, false, "57P01"},
		{"fatal after", proxytest.FatalAfter, true, "57P01"},
		{"error after", proxytest.ErrorAfter, true, "XX000"},
		{"not replicated", proxytest.NotReplicated, true, "01000"},
	}
	for _, test := range tests {
		for how, write := range map[string]func(*testing.T, *pgxpool.Conn) error{"in a batch": inBatch, "plain": plain} {
			t.Run(test.name+", "+how, func(t *testing.T) {
				t.Parallel()
				var warning string
				proxy := proxytest.New(t)
				pool := idempotencytest.NewPool(t, proxy.Configure, func(config *pgxpool.Config) {
					config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) { warning = notice.Code }
				})
				write := func() error {
					conn, err := pool.Acquire(t.Context())
					require.NoError(t, err)
					defer conn.Release()
					return write(t, conn)
				}
				proxy.Strike(2, test.fault)
				require.NoError(t, write())
				require.False(t, proxy.Struck())

				err := write()
				require.True(t, proxy.Struck())
				switch test.code {
				case "01000":
					require.NoError(t, err)
					require.Equal(t, test.code, warning)
				case "":
					require.Error(t, err)
				default:
					var pg *pgconn.PgError
					require.ErrorAs(t, err, &pg)
					require.Equal(t, test.code, pg.Code)
				}

				require.NoError(t, write())
				want := 2
				if test.committed {
					want = 3
				}
				require.Equal(t, want, accounts(t, pool))
			})
		}
	}
}

func TestProxy_hold(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]proxytest.Fault{
		"commit": proxytest.HoldCommit,
		"batch":  proxytest.HoldBatch,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := proxytest.New(t)
			pool := idempotencytest.NewPool(t, proxy.Configure)
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			proxy.Strike(1, fault)
			require.Error(t, inBatch(t, conn))
			conn.Release()
			require.Zero(t, accounts(t, pool))

			var open bool
			require.NoError(t, pool.QueryRow(t.Context(), `
SELECT EXISTS (
    SELECT
      FROM pg_locks
     WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND relation = 'accounts'::regclass
       AND mode = 'RowExclusiveLock'
)`).Scan(&open))
			require.Equal(t, fault == proxytest.HoldCommit, open, "the statements before COMMIT have run")
			proxy.Release()
			require.Eventually(t, func() bool { return accounts(t, pool) == 1 }, 10*time.Second, time.Millisecond)
		})
	}
}

func TestProxy_cancels(t *testing.T) {
	t.Parallel()
	proxy := proxytest.New(t)
	pool := idempotencytest.NewPool(t, proxy.Configure)
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig) // not the pool's: it may cancel
	require.NoError(t, err)
	require.Zero(t, proxy.Cancels())
	require.NoError(t, conn.PgConn().CancelRequest(t.Context()))
	require.Equal(t, 1, proxy.Cancels())
	require.NoError(t, conn.Close(t.Context()))
}

func inBatch(t *testing.T, conn *pgxpool.Conn) error {
	t.Helper()
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue("INSERT INTO accounts (id, name) VALUES (gen_random_uuid(), $1)", "Ann")
	batch.Queue("COMMIT")
	return conn.SendBatch(t.Context(), batch).Close()
}

func plain(t *testing.T, conn *pgxpool.Conn) error {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "INSERT INTO accounts (id, name) VALUES (gen_random_uuid(), $1)", "Ann")
	require.NoError(t, err)
	return tx.Commit(t.Context())
}

func accounts(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM accounts").Scan(&n))
	return n
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }
