package main_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
)

// newServer starts a server of its own for a test that changes settings of all its databases.
func newServer(t *testing.T) (*embeddedpg.Server, *pgxpool.Pool) {
	t.Helper()
	server, err := embeddedpg.Start(t.Context(), embeddedpg.Options{BinDir: programtest.ServerPrograms(t), Logger: programtest.Discard()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	pool, err := pgxpool.New(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	execute(t, pool, "CREATE ROLE twin SUPERUSER LOGIN PASSWORD 'of-both-servers'")
	return server, pool
}

func execute(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := pool.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

func setReadOnly(t *testing.T, pool *pgxpool.Pool, value string) {
	t.Helper()
	execute(t, pool, "ALTER SYSTEM SET default_transaction_read_only = "+value, "SELECT pg_reload_conf()")
}

// A primary that is demoted and stays alive still answers the sessions that only read. On its
// successor, an API key is revoked and an account created before the failover (R30, ready to take an order).
func TestServe_demotedPrimary(t *testing.T) {
	t.Parallel()
	oldServer, oldPrimary := newServer(t)
	newServer, newPrimary := newServer(t)
	stripe, provider := programtest.FakeStripe(t)
	var hosts []string
	for _, pool := range []*pgxpool.Pool{oldPrimary, newPrimary} {
		hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", pool.Config().ConnConfig.Port))
	}
	both := "postgres://twin:of-both-servers@" + strings.Join(hosts, ",") + "/postgres?sslmode=disable"
	env := programtest.Environ(t, "DATABASE_URL="+both, "STRIPE_SECRET_KEY=sk_test_fixture", "STRIPE_API_BASE="+provider,
		"LISTEN_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0")
	for _, server := range []*embeddedpg.Server{oldServer, newServer} {
		programtest.Succeed(t, append(env, "DATABASE_URL="+server.URL("postgres")), "migrate", "up")
	}
	account, revoked, err := accounts.Create(t.Context(), oldPrimary, "Old")
	require.NoError(t, err)
	for _, table := range []string{"accounts", "api_keys"} {
		var rows string
		require.NoError(t, oldPrimary.QueryRow(t.Context(), "SELECT json_agg(t) FROM "+table+" AS t").Scan(&rows))
		_, err := newPrimary.Exec(t.Context(), "INSERT INTO "+table+" SELECT * FROM json_populate_recordset(NULL::"+table+", $1)", rows)
		require.NoError(t, err)
	}
	_, created, err := accounts.Create(t.Context(), newPrimary, "New")
	require.NoError(t, err)
	execute(t, newPrimary, "UPDATE api_keys SET revoked_at = now() WHERE account_id = '"+account.String()+"'")
	setReadOnly(t, newPrimary, "on")

	f := &fixture{t: t, pool: oldPrimary, stripe: stripe, environ: env, apiKey: revoked}
	a := f.serve(env, "--shutdown-delay", "0")
	other := *a
	other.Key = created
	worker := programtest.Start(t, env, "worker")
	worker.Admin() // it has started, which it does not while no server accepts writes
	programtest.RequirePaid(t, a.MustOrder("before-the-failover", programtest.Tea))
	require.Equal(t, http.StatusUnauthorized, other.MustOrder("before-the-failover", programtest.Tea).Status)
	programtest.Eventually(t, func() bool { return a.Ready() == http.StatusOK })

	setReadOnly(t, oldPrimary, "on")
	setReadOnly(t, newPrimary, "off")
	var first time.Time
	programtest.Eventually(t, func() bool {
		key := "at-" + time.Now().Format("150405.000000000")
		byRevoked, byCreated := a.MustOrder(key, programtest.Tea).Status, other.MustOrder(key, programtest.Tea).Status
		if first.IsZero() && (byRevoked == http.StatusCreated || byCreated == http.StatusCreated) {
			first = time.Now()
		}
		return byRevoked == http.StatusUnauthorized && byCreated == http.StatusCreated
	})
	// The replication check requires two seconds, on a machine that is not busy.
	require.Less(t, time.Since(first), 5*time.Second)

	// Without a server that accepts writes, no process is ready.
	setReadOnly(t, newPrimary, "on")
	programtest.Eventually(t, func() bool { return a.Ready() == http.StatusServiceUnavailable })
	for _, p := range []*programtest.Process{a.Process, worker} {
		programtest.Eventually(t, func() bool {
			_, body := programtest.Get(t, p.Admin()+"/metrics")
			return strings.Contains(body, "\norders_database_up 0\n")
		})
	}
	programtest.RequireStartupError(t, env, "serve", "read only connection")
	setReadOnly(t, newPrimary, "off")
	programtest.Eventually(t, func() bool { return a.Ready() == http.StatusOK })
	programtest.RequirePaid(t, other.MustOrder("after-the-outage-1", programtest.Tea))
	worker.Stop()
	a.Stop()
}

// The error names all privileges that orders need, and readiness depends on them and on each
// migration.
func TestServe_privilegesAndMigrations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	role := createRole(t, f.pool, "")
	execute(t, f.pool, "GRANT SELECT ON goose_db_version TO "+role)
	env := f.with("DATABASE_URL="+dbtest.URL(f.pool)+"&role="+role, "ADMIN_ADDR=127.0.0.1:0")
	p := programtest.Start(t, env, "serve")
	require.Equal(t, 1, p.Wait())
	lacking := regexp.MustCompile(`lacks (.*): grant`).FindStringSubmatch(p.Stderr.String())
	require.NotNil(t, lacking, p.Stderr.String())
	privileges := strings.Split(lacking[1], ", ")
	for _, privilege := range privileges {
		execute(t, f.pool, "GRANT "+privilege+" TO "+role)
	}
	a := f.serve(env, "--shutdown-delay", "0")
	id := programtest.RequirePaid(t, a.MustOrder("an-order-of-the-role", programtest.Tea))
	require.Equal(t, http.StatusOK, a.MustDo(http.MethodGet, "/v1/orders/"+id, "", nil).Status)
	programtest.Eventually(t, func() bool { return a.Ready() == http.StatusOK })
	require.Equal(t, http.StatusPaymentRequired, a.MustOrder("a-decline-of-the-role", strings.Replace(programtest.Tea, "pm_card_visa", "pm_card_visa_chargeDeclined", 1)).Status)
	require.Equal(t, http.StatusOK, a.MustDo(http.MethodGet, "/v1/idempotency-keys/an-order-of-the-role", "", nil).Status)
	require.NotContains(t, a.Stderr.String(), "permission denied")
	for _, fault := range []struct{ begin, end, logged string }{
		{"REVOKE INSERT ON audit_records FROM " + role, "GRANT INSERT ON audit_records TO " + role, "lacks INSERT ON audit_records: grant"},
		{
			"UPDATE goose_db_version SET is_applied = false WHERE version_id = 1", "UPDATE goose_db_version SET is_applied = true",
			"run `orders migrate up` .missing: 00001_",
		},
	} {
		execute(t, f.pool, fault.begin)
		programtest.Eventually(t, func() bool { return a.Ready() == http.StatusServiceUnavailable })
		a.WaitFor(&a.Stderr, "not ready.*"+fault.logged)
		execute(t, f.pool, fault.end)
		programtest.Eventually(t, func() bool { return a.Ready() == http.StatusOK })
	}
	a.Stop()
}
