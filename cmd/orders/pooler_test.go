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

// pooledShop is a shop on a server of its own, for a pooler of its own. Its pool
// reaches the server directly.
type pooledShop struct {
	*shop
	server *embeddedpg.Server
	direct []string // an environment without the pooler
}

func newPooledShop(t *testing.T) *pooledShop {
	t.Helper()
	server, err := embeddedpg.Start(t.Context(), embeddedpg.Options{BinDir: serverPrograms(t), Logger: discard()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	pool, err := pgxpool.New(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(pool.Close)

	s := &pooledShop{shop: &shop{t: t, pool: pool}, server: server}
	var provider string
	s.stripe, provider = standIn(t)
	s.direct = environ(t, "DATABASE_URL="+server.URL("postgres"), "STRIPE_SECRET_KEY=sk_test_shop", "STRIPE_API_BASE="+provider,
		"LISTEN_ADDR=127.0.0.1:0", "STRIPE_TIMEOUT=1s", "LOCK_TIMEOUT=2s")
	code, _, stderr := run(t, s.direct, "migrate", "up")
	require.Zero(t, code, stderr)
	s.apiKey = createAccount(t, s.direct)
	return s
}

// pooler starts one before the server, and lets the shop's environment name it.
// With port 0 it is a free one.
func (s *pooledShop) pooler(port int, settings string) *pgbouncer.Pooler {
	s.t.Helper()
	program := os.Getenv("DBTEST_PGBOUNCER")
	require.NotEmpty(s.t, program, "make pgbouncer-check sets DBTEST_PGBOUNCER")
	p, err := pgbouncer.Start(s.t.Context(), pgbouncer.Options{
		Program: program, Server: s.server.URL("postgres"), Port: port, Settings: settings,
	})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, p.Stop()) })
	s.environ = append(s.direct[:len(s.direct):len(s.direct)], "DATABASE_URL="+p.URL("postgres"))
	return p
}

// keepsStatements says whether the pooler can keep prepared statements for its
// clients, as it does from 1.21 on when it is told to.
func keepsStatements(t *testing.T, p *pgbouncer.Pooler) bool {
	t.Helper()
	var major, minor int
	_, err := fmt.Sscanf(p.Version, "%d.%d", &major, &minor)
	require.NoError(t, err, p.Version)
	return major > 1 || minor >= 21
}

// preparing is the pooler's URL without what docs/growing.md adds to it: the
// program prepares its statements.
func preparing(t *testing.T, p *pgbouncer.Pooler) string {
	t.Helper()
	u, err := url.Parse(p.URL("postgres"))
	require.NoError(t, err)
	q := u.Query()
	q.Del("default_query_exec_mode")
	u.RawQuery = q.Encode()
	return u.String()
}

func TestPooler_refusals(t *testing.T) {
	t.Parallel()
	s := newPooledShop(t)
	commands := []string{"serve", "worker --once", "completer", "keys list"}

	p := s.pooler(0, "")
	if keepsStatements(t, p) {
		require.NoError(t, p.Stop())
		p = s.pooler(0, "max_prepared_statements = 0")
	}
	env := s.with("DATABASE_URL=" + preparing(t, p))
	for _, command := range commands {
		requireRefused(t, env, command, "forgets prepared statements: add default_query_exec_mode=cache_describe to DATABASE_URL")
	}
	requireRefused(t, env, "migrate up", "give them the address of PostgreSQL itself")
	for _, command := range []string{"up", "down", "status"} {
		requireRefused(t, s.environ, "migrate "+command, "give them the address of PostgreSQL itself")
	}
	require.Zero(t, s.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"))
	s.serve(s.environ, "--shutdown-delay", "0").stop()
	require.NoError(t, p.Stop())

	p = s.pooler(0, "ignore_startup_parameters = extra_float_digits")
	for _, command := range commands {
		requireRefused(t, s.environ, command, "unsupported startup parameter", "name it in ignore_startup_parameters")
	}
	require.NoError(t, p.Stop())

	s.pooler(0, "")
	s.exec("ALTER ROLE orders RESET ALL")
	for _, command := range commands {
		requireRefused(t, s.environ, command,
			"no idle_in_transaction_session_timeout, lock_timeout, statement_timeout: set them for the role")
	}
}

// A pooler that lends whole sessions is like none: nothing is refused.
func TestPooler_wholeSessions(t *testing.T) {
	t.Parallel()
	s := newPooledShop(t)
	p := s.pooler(0, "pool_mode = session")
	env := s.with("DATABASE_URL=" + preparing(t, p))
	s.serve(env, "--shutdown-delay", "0").stop()
	code, stdout, stderr := run(t, env, "migrate", "up")
	require.Zero(t, code, stderr)
	require.Equal(t, "applied: 0\n", stdout)
}

// From 1.21 on the pooler can keep prepared statements, and then DATABASE_URL
// needs nothing. An older one cannot, which the program notices in any case.
func TestPooler_preparedStatements(t *testing.T) {
	t.Parallel()
	s := newPooledShop(t)
	p := s.pooler(0, "")
	if !keepsStatements(t, p) {
		requireRefused(t, s.with("DATABASE_URL="+preparing(t, p)), "serve", "forgets prepared statements")
		return
	}
	require.NoError(t, p.Stop())
	p = s.pooler(0, "max_prepared_statements = 200")
	a := s.serve(s.with("DATABASE_URL="+preparing(t, p)), "--shutdown-delay", "0")
	var lanes errgroup.Group
	for i := range 8 {
		lanes.Go(func() error {
			for n := range 5 {
				answer, err := a.order(fmt.Sprintf("prepared-order-key-%d-%d", i, n), tea)
				if err != nil || answer.status != http.StatusCreated {
					return fmt.Errorf("%d %s %w", answer.status, answer.body, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, lanes.Wait())
	require.Len(t, s.stripe.Charges(), 40)
	a.stop()
}

// The pooler dies under load and comes back: clients hear 503 or 409 meanwhile,
// and in the end each of their orders is charged once.
func TestPooler_restarted(t *testing.T) {
	t.Parallel()
	s := newPooledShop(t)
	p := s.pooler(0, "")
	a, b := s.serve(s.environ, "--shutdown-delay", "0"), s.serve(s.environ, "--shutdown-delay", "0")

	var over atomic.Bool
	var paid atomic.Int64
	var lanes errgroup.Group
	for i := range 8 {
		lanes.Go(func() error {
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
		p = s.pooler(p.Port(), "")
	}
	over.Store(true)
	require.NoError(t, lanes.Wait())
	require.Len(t, s.stripe.Charges(), int(paid.Load()))
	require.EqualValues(t, paid.Load(), s.count("SELECT count(*) FROM orders WHERE status = 'paid'"))
	require.EqualValues(t, paid.Load(), s.staged())
	a.stop()
	b.stop()
}

// A pooler that has no connection to lend says so in time for an answer.
func TestPooler_noConnectionToSpare(t *testing.T) {
	t.Parallel()
	s := newPooledShop(t)
	p := s.pooler(0, "default_pool_size = 1")
	a := s.serve(s.environ, "--shutdown-delay", "0")

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
	require.Len(t, s.stripe.Charges(), 1)
	a.stop()
}

// What a standby has not confirmed is no answer (R22): the server's warning gets
// through the pooler, and the pooler does not cancel the COMMIT of a process that
// died, which would make it visible.
func TestPooler_notReplicated(t *testing.T) {
	t.Parallel()
	s := newPooledShop(t)
	standby := func(name string) {
		s.exec("ALTER SYSTEM SET synchronous_standby_names = '" + name + "'")
		s.exec("SELECT pg_reload_conf()")
		eventually(t, func() bool {
			return s.count("SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = $1", name) == 1
		})
	}
	p := s.pooler(0, "default_pool_size = 1")
	s.exec("ALTER ROLE orders SET synchronous_commit = on") // it is off for everybody else
	standby("nobody")
	a := s.serve(s.environ)
	const waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

	warned := make(chan answer, 1)
	go func() {
		answer, err := a.order("standby-order-key-1", tea)
		if err != nil {
			t.Error(err)
		}
		warned <- answer
	}()
	var first answer
	eventually(t, func() bool {
		s.exec("SELECT pg_cancel_backend(pid) " + waiting)
		select {
		case first = <-warned:
			return true
		default:
			return false
		}
	})
	require.Equal(t, http.StatusServiceUnavailable, first.status, first.body)
	require.Empty(t, s.stripe.Requests(), "nothing was asked of the provider")

	go func() { _, _ = a.order("standby-order-key-2", tea) }()
	eventually(t, func() bool { return s.count("SELECT count(*) "+waiting) == 1 })
	a.signal(syscall.SIGKILL)
	a.wait()
	other, err := pgx.Connect(t.Context(), p.URL("postgres"))
	require.NoError(t, err)
	defer other.Close(t.Context())
	_, err = other.Exec(t.Context(), "SELECT") // when the pooler has given up what the dead process had
	require.NoError(t, err)
	require.EqualValues(t, 1, s.count("SELECT count(*) "+waiting))
	const second = "SELECT count(*) FROM idempotency_keys WHERE idempotency_key = 'standby-order-key-2'"
	require.Zero(t, s.count(second))

	standby("")
	eventually(t, func() bool { return s.count(second) == 1 })
	b := s.serve(s.environ, "--shutdown-delay", "0")
	requirePaid(t, b.orderUntilFinal("standby-order-key-1", tea))
	requirePaid(t, b.orderUntilFinal("standby-order-key-2", tea))
	require.Len(t, s.stripe.Charges(), 2)
	b.stop()
}
