//go:build pgbouncer

package pgbouncer_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }

// pooledFixture has its own server and pooler. Its pool connects to the server directly.
type pooledFixture struct {
	*labtest.Fixture

	server *embeddedpg.Server
	direct []string // without the pooler
}

func startServer(t *testing.T) *embeddedpg.Server {
	t.Helper()
	server, err := embeddedpg.Start(t.Context(), embeddedpg.Options{
		BinDir: programtest.ServerPrograms(t), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}

func newPooledFixture(t *testing.T) *pooledFixture {
	t.Helper()
	server := startServer(t)
	pool, err := pgxpool.New(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	f := &pooledFixture{
		Fixture: labtest.NewFixtureOn(t, pool, server.URL("postgres"), "STEP_TIMEOUT=1s", "LEASE_DURATION=2s"),
		server:  server,
	}
	f.direct = f.Environ
	labtest.Run(t, f.direct, "migrate", "up")
	f.CreateAccount()
	return f
}

// pooler starts a pooler and adds it to the environment. Port 0 is a free port.
func (f *pooledFixture) pooler(port int, settings string) *pooler {
	f.T.Helper()
	p, err := startPooler(f.T.Context(), options{server: f.server.URL("postgres"), port: port, settings: settings})
	require.NoError(f.T, err)
	f.T.Cleanup(func() { require.NoError(f.T, p.stop()) })
	f.Environ = append(f.direct[:len(f.direct):len(f.direct)], "DATABASE_URL="+p.url("postgres"))
	return p
}

func requireStartupError(t *testing.T, environ []string, command string, reasons ...string) {
	t.Helper()
	p := labtest.Start(t, environ, strings.Fields(command)...)
	require.Equal(t, 1, p.Wait())
	require.Regexp(t, `(?m)^orders: `, p.Stderr.String())
	for _, reason := range reasons {
		require.Contains(t, p.Stderr.String(), reason)
	}
}

// keepsStatements reports whether the pooler tracks prepared statements, which needs
// version 1.21.
func keepsStatements(t *testing.T, p *pooler) bool {
	t.Helper()
	var major, minor int
	_, err := fmt.Sscanf(p.version, "%d.%d", &major, &minor)
	require.NoError(t, err, p.version)
	return major > 1 || minor >= 21
}

// preparing returns the pooler's URL without the query mode, so that the program prepares
// its statements.
func preparing(t *testing.T, p *pooler) string {
	t.Helper()
	u, err := url.Parse(p.url("postgres"))
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

	p := f.pooler(0, "ignore_startup_parameters = extra_float_digits")
	for _, command := range commands {
		requireStartupError(t, f.Environ, command, "unsupported startup parameter")
	}
	require.NoError(t, p.stop())

	f.pooler(0, "")
	f.Exec("ALTER ROLE orders RESET ALL")
	for _, command := range commands {
		requireStartupError(t, f.Environ, command,
			"no idle_in_transaction_session_timeout, lock_timeout, statement_timeout: set them for the role")
	}
}

func TestPooler_sessionPooling(t *testing.T) {
	t.Parallel()
	f := newPooledFixture(t)
	p := f.pooler(0, "pool_mode = session")
	env := f.With("DATABASE_URL=" + preparing(t, p))
	f.Serve(env, "--shutdown-delay", "0").Stop()
	require.Equal(t, "applied: 0\n", labtest.Run(t, env, "migrate", "up"))
}

// With version 1.21 or later, DATABASE_URL needs no query mode.
func TestPooler_preparedStatements(t *testing.T) {
	t.Parallel()
	f := newPooledFixture(t)
	p := f.pooler(0, "")
	if !keepsStatements(t, p) {
		return
	}
	require.NoError(t, p.stop())
	p = f.pooler(0, "max_prepared_statements = 200")
	a := f.Serve(f.With("DATABASE_URL="+preparing(t, p)), "--shutdown-delay", "0")
	var clients errgroup.Group
	for i := range 8 {
		clients.Go(func() error {
			for n := range 5 {
				response, err := a.Order(t.Context(), fmt.Sprintf("prepared-order-key-%d-%d", i, n))
				if err != nil || response.Status != http.StatusCreated {
					return fmt.Errorf("%d %s %w", response.Status, response.Body, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, clients.Wait())
	require.Len(t, f.Stripe.Charges(), 40)
	a.Stop()
}

// Clients get 503 or 409 and retry, and each order is charged once.
func TestPooler_restarted(t *testing.T) {
	t.Parallel()
	f := newPooledFixture(t)
	p := f.pooler(0, "")
	a, b := f.Serve(f.Environ, "--shutdown-delay", "0"), f.Serve(f.Environ, "--shutdown-delay", "0")

	var over atomic.Bool
	var paid atomic.Int64
	var clients errgroup.Group
	for i := range 8 {
		clients.Go(func() error {
			process := []*programtest.API{a, b}[i%2]
			for n := 0; !over.Load(); n++ {
				if _, err := labtest.UntilPaid(t.Context(), process, fmt.Sprintf("pooled-order-key-%d-%d", i, n)); err != nil {
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
		programtest.Eventually(t, func() bool { return paid.Load() >= enough || over.Load() })
		require.NoError(t, p.stop())
		p = f.pooler(p.port, "")
	}
	over.Store(true)
	require.NoError(t, clients.Wait())
	require.Len(t, f.Stripe.Charges(), int(paid.Load()))
	require.EqualValues(t, paid.Load(), f.Count("SELECT count(*) FROM orders WHERE status = 'paid'"))
	require.EqualValues(t, paid.Load(), f.Count("SELECT count(*) FROM staged_jobs WHERE kind = 'receipt'"))
	a.Stop()
	b.Stop()
}

// A pooler without a free server connection returns an error in time for a 503.
func TestPooler_exhausted(t *testing.T) {
	t.Parallel()
	f := newPooledFixture(t)
	p := f.pooler(0, "default_pool_size = 1")
	a := f.Serve(f.Environ, "--shutdown-delay", "0")

	busy, err := pgx.Connect(t.Context(), p.url("postgres"))
	require.NoError(t, err)
	defer busy.Close(t.Context())
	_, err = busy.Exec(t.Context(), "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	refused, err := a.Order(t.Context(), "crowded-order-key-1")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, refused.Status, refused.Body)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	_, err = busy.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	_, err = labtest.UntilPaid(t.Context(), a, "crowded-order-key-1")
	require.NoError(t, err)
	require.Len(t, f.Stripe.Charges(), 1)
	a.Stop()
}

// A COMMIT that no standby confirmed gets no final response (R22). The pooler forwards
// the server's warning. It does not cancel the COMMIT of a killed process, which would
// make it visible.
func TestPooler_notReplicated(t *testing.T) {
	t.Parallel()
	f := newPooledFixture(t)
	standby := func(name string) {
		f.Exec("ALTER SYSTEM SET synchronous_standby_names = '" + name + "'")
		f.Exec("SELECT pg_reload_conf()")
		programtest.Eventually(t, func() bool {
			return f.Count("SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = $1", name) == 1
		})
	}
	p := f.pooler(0, "default_pool_size = 1")
	f.Exec("ALTER ROLE orders SET synchronous_commit = on") // it is off for other roles
	standby("nobody")
	a := f.Serve(f.Environ)
	const waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

	warned := make(chan programtest.Response, 1)
	go func() {
		response, err := a.Order(t.Context(), "standby-order-key-1")
		if err != nil {
			t.Error(err)
		}
		warned <- response
	}()
	var first programtest.Response
	programtest.Eventually(t, func() bool {
		f.Exec("SELECT pg_cancel_backend(pid) " + waiting)
		select {
		case first = <-warned:
			return true
		default:
			return false
		}
	})
	require.Equal(t, http.StatusServiceUnavailable, first.Status, first.Body)
	for _, request := range f.Stripe.Requests() {
		require.Equal(t, http.MethodGet, request.Method, "the provider got no call but those of the start")
	}

	go func() { _, _ = a.Order(t.Context(), "standby-order-key-2") }()
	programtest.Eventually(t, func() bool { return f.Count("SELECT count(*) "+waiting) == 1 })
	a.Signal(syscall.SIGKILL)
	a.Wait()
	other, err := pgx.Connect(t.Context(), p.url("postgres"))
	require.NoError(t, err)
	defer other.Close(t.Context())
	_, err = other.Exec(t.Context(), "SELECT") // after the pooler closed the connections of the killed process
	require.NoError(t, err)
	require.EqualValues(t, 1, f.Count("SELECT count(*) "+waiting))
	const second = "SELECT count(*) FROM idempotency_keys WHERE idempotency_key = 'standby-order-key-2'"
	require.Zero(t, f.Count(second))

	standby("")
	programtest.Eventually(t, func() bool { return f.Count(second) == 1 })
	b := f.Serve(f.Environ, "--shutdown-delay", "0")
	_, err = labtest.UntilPaid(t.Context(), b, "standby-order-key-1")
	require.NoError(t, err)
	_, err = labtest.UntilPaid(t.Context(), b, "standby-order-key-2")
	require.NoError(t, err)
	require.Len(t, f.Stripe.Charges(), 2)
	b.Stop()
}

// The skipped tests need startup parameters such as role, their own timeouts, the migration lock or session names. A
// pooled session has none of these. make test runs them.
func TestModule(t *testing.T) {
	t.Parallel()
	const skipped = "^(TestAuthenticate_poolExhausted|TestAuthenticate_standby|TestDatabase_timeouts|TestGenerated|TestMigrate_.*|TestRoles.*" +
		"|TestSearchPath_awayFromTheTables|TestServe_fewerSessionsThanThePool|TestServe_fromEmptyDatabase|TestServe_privilegesAndMigrations" +
		"|TestServe_settingsThatLose|TestStartupError)$"
	server := startServer(t)
	p, err := startPooler(t.Context(), options{server: server.URL("postgres")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.stop()) })
	tests := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-parallel", "4", "-skip", skipped,
		"./idempotency", "./orders", "./receipts", "./api", "./internal/accounts", "./cmd/orders", "./internal/crash")
	tests.Dir = "../.."
	tests.Env = append(os.Environ(), "DATABASE_URL="+server.URL("postgres"), "DBTEST_POOLER_URL="+p.url("postgres"))
	output, err := tests.CombinedOutput()
	require.NoError(t, err, "%s", output)
}
