package main_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/programtest"
)

// newFixtureWithRoles runs deploy/roles.sql as managed services require: as the owner of the
// database, who may create roles and is no superuser. The fixture's commands run as the role of
// the program, and owner is the environment of migrations. Roles belong to the server, so it has its own.
func newFixtureWithRoles(t *testing.T) (f *fixture, owner []string) {
	t.Helper()
	server, superuser := newServer(t)
	execute(t, superuser, "CREATE ROLE admin CREATEROLE", "CREATE DATABASE orders OWNER admin")
	as := func(role string) string { return server.URL("orders") + "&role=" + role }
	conn, err := pgx.Connect(t.Context(), as("admin"))
	require.NoError(t, err)
	file, err := os.ReadFile("../../deploy/roles.sql")
	require.NoError(t, err)
	statements := strings.Replace(string(file), `\set ON_ERROR_STOP on`, "", 1) // a command of psql, not SQL
	_, err = conn.Exec(t.Context(), statements)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))

	f = newFixtureAnHourAgo(t)
	f.pool, err = pgxpool.New(t.Context(), server.URL("orders"))
	require.NoError(t, err)
	t.Cleanup(f.pool.Close)
	f.environ = f.with("DATABASE_URL="+as("orders"), "LOG_LEVEL=info", "SMTP_URL=smtp://"+programtest.NewMailServer(t, "").Address)
	return f, programtest.Environ(t, "DATABASE_URL="+as("orders_owner"))
}

// Every command works with the roles of deploy/roles.sql, and the program's role has no more
// privileges than they need.
func TestRoles(t *testing.T) {
	t.Parallel()
	f, owner := newFixtureWithRoles(t)
	programtest.Succeed(t, owner, "migrate", "up")
	programtest.Succeed(t, owner, "migrate", "down", "--yes")
	programtest.Succeed(t, owner, "migrate", "up")
	programtest.Succeed(t, f.environ, "migrate", "status")
	f.apiKey = createAccount(t, f.environ)
	account := f.account().String()

	a := f.serve(f.environ, "--shutdown-delay", "0")
	programtest.Eventually(t, func() bool { return a.Ready() == http.StatusOK })
	id := programtest.RequirePaid(t, a.MustOrder("an-order-of-a-role", programtest.Tea))
	for _, key := range []string{"abandoned-order-01", "abandoned-order-02", "abandoned-order-03", "abandoned-order-04"} {
		f.abandonAt(a, key)
	}
	a.Stop()

	f.exec("UPDATE staged_jobs SET failed_at = now(), last_error = 'a test'")
	listed, _ := programtest.Succeed(t, f.environ, "jobs", "list")
	require.Contains(t, listed, id)
	retried, _ := programtest.Succeed(t, f.environ, "jobs", "retry", "all", "--reason", "a test")
	require.Equal(t, "The worker tries again, now: 1\n", retried)
	programtest.Succeed(t, f.environ, "worker", "--once")
	programtest.Succeed(t, f.environ, "keys", "list")
	programtest.Succeed(t, f.environ, "keys", "show", "abandoned-order-01")
	finished, _ := programtest.Succeed(t, f.environ, "keys", "retry", "abandoned-order-01", "--reason", "a test")
	require.Regexp(t, `201 \{"id":.*"status":"paid".*\}\n$`, finished)
	programtest.Succeed(t, f.environ, "keys", "resolve", "abandoned-order-02", "--reason", "a test")
	loseRows := func(key string) {
		f.exec("DELETE FROM idempotency_keys WHERE idempotency_key = $1", key)
		f.exec("DELETE FROM orders WHERE idempotency_key = $1", key)
	}
	loseRows("abandoned-order-04") // before its charge
	programtest.Succeed(t, f.environ, "completer")
	require.Zero(t, f.count("SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL"))
	loseRows("abandoned-order-03")
	f.exec("UPDATE orders SET created_at = created_at - interval '1 hour'")
	_, stdout, stderr := programtest.Run(t, f.environ, "reconcile", "--lost-rows", "--fix", "--since", "72h", "--by", "grace")
	require.Contains(t, stdout, "order missing, key expired", stderr)
	require.Contains(t, stdout, "Discrepancies: 2, fixed: 1.", "a charge remains for the operator")
	lost := f.keys("show", "abandoned-order-03")
	require.Regexp(t, `(?m)^found +key whose rows were lost, expired by an operator$`, lost)
	require.Regexp(t, `(?m)^state +expired\n(?s:.*)^20.{17} +key\.expire \{"by": ?"grace", "reason": ?"the rows of pi_\w+ were lost"\}$`, lost)
	_, timeline, _ := strings.Cut(lost, "\nTimeline")
	require.Contains(t, f.keys("show", idempotency.KeyID(f.account(), "abandoned-order-03").String()), timeline)
	require.Contains(t, programtest.Fail(t, f.environ, "keys", "retry", "abandoned-order-03", "--reason", "a test"), "is expired, so nothing continues it")
	f.exec("UPDATE idempotency_keys SET finished_at = finished_at - interval '9 days', created_at = created_at - interval '9 days'")
	counted, _ := programtest.Succeed(t, f.environ, "reaper", "--dry-run")
	require.Regexp(t, `^finished keys older than 72h0m0s: [1-9]; none was emptied\n$`, counted)
	programtest.Succeed(t, f.environ, "reaper")
	require.NotZero(t, f.count("SELECT count(*) FROM idempotency_keys WHERE expired_at IS NOT NULL"))
	programtest.Succeed(t, f.environ, "accounts", "keys", "create", "--account", account)
	listed, _ = programtest.Succeed(t, f.environ, "accounts", "keys", "list", "--account", account)
	key := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(listed)
	programtest.Succeed(t, f.environ, "accounts", "keys", "revoke", key, "--account", account)

	email := func() int { return f.count("SELECT count(email) FROM orders WHERE id = '" + id + "'") }
	erase := []string{"erase", "--account", account, "--order", id}
	erased, _ := programtest.Succeed(t, f.environ, append(erase, "--by", "grace")...)
	require.Equal(t, "The personal data of order "+id+" is erased, except in backups and at the provider (docs/erase.md).\n", erased)
	require.Zero(t, email())
	require.Regexp(t, `(?m)^20.{17} +order\.erased \{"by": ?"grace"\}$`, f.keys("show", id))
	require.Contains(t, programtest.Fail(t, f.environ, append(erase[:4:4], uuid.NewString())...), "no such resource")

	for statement, denied := range map[string]bool{
		"UPDATE audit_records SET action = 'x'":             true,
		"DELETE FROM audit_records":                         true,
		"TRUNCATE audit_records":                            true,
		"DELETE FROM idempotency_keys":                      true,
		"INSERT INTO goose_db_version VALUES (0, 99, true)": true,
		"DELETE FROM goose_db_version":                      true,
		"DELETE FROM orders":                                true,
		"CREATE TABLE x ()":                                 true,
		"UPDATE staged_jobs SET run_at = now()":             false,
	} {
		conn, err := pgx.Connect(t.Context(), programtest.Value(f.environ, "DATABASE_URL"))
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), statement)
		require.NoError(t, conn.Close(t.Context()))
		if !denied {
			require.NoError(t, err, statement)
			continue
		}
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, statement)
		require.Equal(t, "42501", pg.Code, "%s: %s", statement, pg.Message)
	}
	require.Equal(t, 2, f.count(`
SELECT count(*)
  FROM pg_class
 WHERE relnamespace = 'public'::regnamespace
   AND relkind = 'r'
   AND has_table_privilege('orders', oid, 'DELETE')`),
		"migrations/statements/grant.sql has what the program needs of each table: only jobs and provider events are deleted")
}
