//go:build pgbouncer

package main_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/deploy/pgbouncer"
	"example.com/orders-api/internal/embeddedpg"
)

// pooledFixture is a fixture with its own server and pooler. Its pool connects to the
// server directly.
type pooledFixture struct {
	*fixture
	server *embeddedpg.Server
	direct []string // an environment without the pooler
}

func newPooledFixture(t *testing.T) *pooledFixture {
	t.Helper()
	server, err := embeddedpg.Start(t.Context(), embeddedpg.Options{BinDir: serverPrograms(t), Logger: discard()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	pool, err := pgxpool.New(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(pool.Close)

	f := &pooledFixture{fixture: &fixture{t: t, pool: pool}, server: server}
	var provider string
	f.stripe, provider = standIn(t)
	f.direct = environ(t, "DATABASE_URL="+server.URL("postgres"), "STRIPE_SECRET_KEY=sk_test_fixture", "STRIPE_API_BASE="+provider,
		"LISTEN_ADDR=127.0.0.1:0", "STRIPE_TIMEOUT=1s", "LOCK_TIMEOUT=2s")
	code, _, stderr := run(t, f.direct, "migrate", "up")
	require.Zero(t, code, stderr)
	f.apiKey = createAccount(t, f.direct)
	return f
}

// pooler starts a pooler and puts it into the environment. With port 0 it chooses a
// free port.
func (f *pooledFixture) pooler(port int, settings string) *pgbouncer.Pooler {
	f.t.Helper()
	program := os.Getenv("DBTEST_PGBOUNCER")
	require.NotEmpty(f.t, program, "make pgbouncer-check sets DBTEST_PGBOUNCER")
	p, err := pgbouncer.Start(f.t.Context(), pgbouncer.Options{
		Program: program, Server: f.server.URL("postgres"), Port: port, Settings: settings,
	})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, p.Stop()) })
	f.environ = append(f.direct[:len(f.direct):len(f.direct)], "DATABASE_URL="+p.URL("postgres"))
	return p
}

// keepsStatements reports whether the pooler can track prepared statements, as it can
// from 1.21 on.
func keepsStatements(t *testing.T, p *pgbouncer.Pooler) bool {
	t.Helper()
	var major, minor int
	_, err := fmt.Sscanf(p.Version, "%d.%d", &major, &minor)
	require.NoError(t, err, p.Version)
	return major > 1 || minor >= 21
}

// preparing returns the pooler's URL without the query mode of docs/scaling.md, so that
// the program prepares its statements.
func preparing(t *testing.T, p *pgbouncer.Pooler) string {
	t.Helper()
	u, err := url.Parse(p.URL("postgres"))
	require.NoError(t, err)
	q := u.Query()
	q.Del("default_query_exec_mode")
	u.RawQuery = q.Encode()
	return u.String()
}

func TestPooler_startupErrors(t *testing.T) {
	t.Parallel()
	f := newPooledFixture(t)
	commands := []string{"serve", "worker --once", "completer", "keys list"}

	p := f.pooler(0, "")
	if keepsStatements(t, p) {
		require.NoError(t, p.Stop())
		p = f.pooler(0, "max_prepared_statements = 0")
	}
	env := f.with("DATABASE_URL=" + preparing(t, p))
	for _, command := range commands {
		requireStartupError(t, env, command, "loses prepared statements: add default_query_exec_mode=cache_describe to DATABASE_URL")
	}
	requireStartupError(t, env, "migrate up", "connect to PostgreSQL itself")
	for _, command := range []string{"up", "down", "status"} {
		requireStartupError(t, f.environ, "migrate "+command, "connect to PostgreSQL itself")
	}
	require.Zero(t, f.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"))
	f.serve(f.environ, "--shutdown-delay", "0").stop()
	require.NoError(t, p.Stop())

	p = f.pooler(0, "ignore_startup_parameters = extra_float_digits")
	for _, command := range commands {
		requireStartupError(t, f.environ, command, "unsupported startup parameter", "add it to ignore_startup_parameters")
	}
	require.NoError(t, p.Stop())

	f.pooler(0, "")
	f.exec("ALTER ROLE orders RESET ALL")
	for _, command := range commands {
		requireStartupError(t, f.environ, command,
			"no idle_in_transaction_session_timeout, lock_timeout, statement_timeout: set them for the role")
	}
}

// With session pooling, every command works.
func TestPooler_sessionPooling(t *testing.T) {
	t.Parallel()
	f := newPooledFixture(t)
	p := f.pooler(0, "pool_mode = session")
	env := f.with("DATABASE_URL=" + preparing(t, p))
	f.serve(env, "--shutdown-delay", "0").stop()
	code, stdout, stderr := run(t, env, "migrate", "up")
	require.Zero(t, code, stderr)
	require.Equal(t, "applied: 0\n", stdout)
}

// From 1.21 on the pooler can track prepared statements, and DATABASE_URL needs no query
// mode. The program detects an older pooler.
func TestPooler_preparedStatements(t *testing.T) {
	t.Parallel()
	f := newPooledFixture(t)
	p := f.pooler(0, "")
	if !keepsStatements(t, p) {
		requireStartupError(t, f.with("DATABASE_URL="+preparing(t, p)), "serve", "loses prepared statements")
		return
	}
	require.NoError(t, p.Stop())
	p = f.pooler(0, "max_prepared_statements = 200")
	a := f.serve(f.with("DATABASE_URL="+preparing(t, p)), "--shutdown-delay", "0")
	var clients errgroup.Group
	for i := range 8 {
		clients.Go(func() error {
			for n := range 5 {
				response, err := a.order(fmt.Sprintf("prepared-order-key-%d-%d", i, n), tea)
				if err != nil || response.status != http.StatusCreated {
					return fmt.Errorf("%d %s %w", response.status, response.body, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, clients.Wait())
	require.Len(t, f.stripe.Charges(), 40)
	a.stop()
}

// The pooler is killed and restarted under load: clients get 503 or 409, retry, and
// each order is charged once.
func TestPooler_restarted(t *testing.T) {
	t.Parallel()
	f := newPooledFixture(t)
	p := f.pooler(0, "")
	a, b := f.serve(f.environ, "--shutdown-delay", "0"), f.serve(f.environ, "--shutdown-delay", "0")

	var over atomic.Bool
	var paid atomic.Int64
	var clients errgroup.Group
	for i := range 8 {
		clients.Go(func() error {
			process := []*api{a, b}[i%2]
			for n := 0; !over.Load(); n++ {
				if _, err := process.untilPaid(t.Context(), fmt.Sprintf("pooled-order-key-%d-%d", i, n)); err != nil {
					over.Store(true)
					return err
				}
				paid.Add(1)
			}
			return nil
		})
	}
	for range 3 {
		enough := paid.Load() + 20
		eventually(t, func() bool { return paid.Load() >= enough || over.Load() })
		require.NoError(t, p.Stop())
		p = f.pooler(p.Port(), "")
	}
	over.Store(true)
	require.NoError(t, clients.Wait())
	require.Len(t, f.stripe.Charges(), int(paid.Load()))
	require.EqualValues(t, paid.Load(), f.count("SELECT count(*) FROM orders WHERE status = 'paid'"))
	require.EqualValues(t, paid.Load(), f.staged())
	a.stop()
	b.stop()
}

// A pooler without a free server connection returns an error in time for a 503.
func TestPooler_exhausted(t *testing.T) {
	t.Parallel()
	f := newPooledFixture(t)
	p := f.pooler(0, "default_pool_size = 1")
	a := f.serve(f.environ, "--shutdown-delay", "0")

	busy, err := pgx.Connect(t.Context(), p.URL("postgres"))
	require.NoError(t, err)
	defer busy.Close(t.Context())
	_, err = busy.Exec(t.Context(), "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	refused, err := a.order("crowded-order-key-1", tea)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, refused.status, refused.body)
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	_, err = busy.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	requirePaid(t, a.orderUntilFinal("crowded-order-key-1", tea))
	require.Len(t, f.stripe.Charges(), 1)
	a.stop()
}

// A COMMIT that no standby confirmed gets no final response (R22): the server's warning
// passes the pooler, and the pooler does not cancel the COMMIT of a killed process,
// which would make it visible.
func TestPooler_notReplicated(t *testing.T) {
	t.Parallel()
	f := newPooledFixture(t)
	standby := func(name string) {
		f.exec("ALTER SYSTEM SET synchronous_standby_names = '" + name + "'")
		f.exec("SELECT pg_reload_conf()")
		eventually(t, func() bool {
			return f.count("SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = $1", name) == 1
		})
	}
	p := f.pooler(0, "default_pool_size = 1")
	f.exec("ALTER ROLE orders SET synchronous_commit = on") // it is off for other roles
	standby("nobody")
	a := f.serve(f.environ)
	const waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

	warned := make(chan apiResponse, 1)
	go func() {
		response, err := a.order("standby-order-key-1", tea)
		if err != nil {
			t.Error(err)
		}
		warned <- response
	}()
	var first apiResponse
	eventually(t, func() bool {
		f.exec("SELECT pg_cancel_backend(pid) " + waiting)
		select {
		case first = <-warned:
			return true
		default:
			return false
		}
	})
	require.Equal(t, http.StatusServiceUnavailable, first.status, first.body)
	require.Empty(t, f.stripe.Requests(), "the provider got no call")

	go func() { _, _ = a.order("standby-order-key-2", tea) }()
	eventually(t, func() bool { return f.count("SELECT count(*) "+waiting) == 1 })
	a.signal(syscall.SIGKILL)
	a.wait()
	other, err := pgx.Connect(t.Context(), p.URL("postgres"))
	require.NoError(t, err)
	defer other.Close(t.Context())
	_, err = other.Exec(t.Context(), "SELECT") // after the pooler closed the connections of the killed process
	require.NoError(t, err)
	require.EqualValues(t, 1, f.count("SELECT count(*) "+waiting))
	const second = "SELECT count(*) FROM idempotency_keys WHERE idempotency_key = 'standby-order-key-2'"
	require.Zero(t, f.count(second))

	standby("")
	eventually(t, func() bool { return f.count(second) == 1 })
	b := f.serve(f.environ, "--shutdown-delay", "0")
	requirePaid(t, b.orderUntilFinal("standby-order-key-1", tea))
	requirePaid(t, b.orderUntilFinal("standby-order-key-2", tea))
	require.Len(t, f.stripe.Charges(), 2)
	b.stop()
}
