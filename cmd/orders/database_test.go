package main_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
)

// A path that leads away from the tables is an error of each command, because a second, empty installation
// would know no key.
func TestSearchPath_awayFromTheTables(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	role := createRole(t, f.pool, "LOGIN SUPERUSER PASSWORD 'limited'")
	asRole := "DATABASE_URL=" + urlOf(t, f.pool, role)
	execute(t, f.pool, "CREATE SCHEMA elsewhere", "CREATE SCHEMA "+role)
	for _, test := range []struct {
		settings []string
		commands string
		reason   string
	}{
		{[]string{"DATABASE_URL=" + dbtest.URL(f.pool) + "&search_path=missing"}, "serve, migrate up", "search_path (missing) leads away from the tables, which are in schema public: "},
		{[]string{asRole}, "migrate up, migrate down --yes", `search_path ("$user", public) leads away from the tables, which are in schema public: `},
	} {
		for command := range strings.SplitSeq(test.commands, ", ") {
			programtest.RequireStartupError(t, f.with(test.settings...), command, test.reason)
		}
	}
	// The tables are still on the path of the program's role.
	programtest.Succeed(t, f.with(asRole), "keys", "list")
	execute(t, f.pool, "ALTER ROLE "+role+" SET search_path = elsewhere")
	programtest.RequireStartupError(t, f.with(asRole), "migrate up", "search_path (elsewhere) leads away from the tables, which are in schema public: set search_path=public in DATABASE_URL")
	stdout, _ := programtest.Succeed(t, f.with(asRole+"&search_path=public"), "migrate", "up")
	require.Equal(t, "applied: 0\n", stdout)

	// A schema that DATABASE_URL names becomes another installation.
	second := f.with("DATABASE_URL=" + dbtest.URL(f.pool) + "&search_path=elsewhere")
	programtest.RequireStartupError(t, second, "serve", "for another installation in this database, set search_path to its schema, and run `orders migrate up`")
	programtest.Succeed(t, second, "migrate", "up")
	key := createAccount(t, second)
	a := f.serve(second, "--shutdown-delay", "0")
	require.Equal(t, http.StatusUnauthorized, a.MustOrder("an-order-of-another-one", programtest.Tea).Status)
	a.Key = key
	programtest.RequirePaid(t, a.MustOrder("an-order-of-another-one", programtest.Tea))
	a.Stop()
}

// migrate connects as the other commands do: to the server that accepts writes, and to no database of
// another encoding.
func TestMigrate_checksOfThePool(t *testing.T) {
	t.Parallel()
	readOnly, admin := newServer(t)
	writable, other := newServer(t)
	setReadOnly(t, admin, "on")
	address := func(pool *pgxpool.Pool) string {
		u, err := url.Parse(pool.Config().ConnString())
		require.NoError(t, err)
		return u.Host
	}
	both := "postgres://twin:of-both-servers@" + address(admin) + "," + address(other) + "/postgres?sslmode=disable"
	stdout, _ := programtest.Succeed(t, programtest.Environ(t, "DATABASE_URL="+both), "migrate", "up")
	require.Regexp(t, `applied: \d`, stdout)
	programtest.RequireStartupError(t, programtest.Environ(t, "DATABASE_URL="+readOnly.URL("postgres")), "migrate up", "read only connection")

	execute(t, other, "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
	programtest.RequireStartupError(t, programtest.Environ(t, "DATABASE_URL="+writable.URL("latin")), "migrate up", "the database session has no server_encoding = UTF8")
	programtest.RequireStartupError(t, programtest.Environ(t, "DATABASE_URL="+writable.URL("postgres")+"&statement_timeout=0"), "migrate status", "the database session has no statement_timeout")

	// A pooler that rejects startup parameters has them from its role.
	execute(t, other, "ALTER ROLE twin SET lock_timeout = '2s'", "ALTER ROLE twin SET statement_timeout = '10s'",
		"ALTER ROLE twin SET idle_in_transaction_session_timeout = '5s'")
	programtest.Succeed(t, programtest.Environ(t, "DATABASE_URL="+both+"&lock_timeout=&statement_timeout=&idle_in_transaction_session_timeout="), "migrate", "up")
}

// A role may open fewer sessions than serve's pools. It says so with both numbers, and requests wait.
func TestServe_fewerSessionsThanThePool(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	role := createRole(t, f.pool, "LOGIN PASSWORD 'limited' CONNECTION LIMIT 8")
	execute(t, f.pool, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+role)
	a := f.serve(f.with("DATABASE_URL="+urlOf(t, f.pool, role)), "--shutdown-delay", "0")
	a.WaitFor(&a.Stderr, `level=WARN msg="setting of the database" setting="CONNECTION LIMIT or max_connections permits 8 sessions, less than the 11 of this process`)
	var group errgroup.Group
	group.SetLimit(20) // more would be shed on a busy machine
	for i := range 100 {
		group.Go(func() error {
			response, err := a.Order(t.Context(), fmt.Sprintf("order-beside-a-limit-%d", i))
			if err == nil && response.Status != http.StatusCreated {
				err = fmt.Errorf("%d %s", response.Status, response.Body)
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	a.Stop()
	require.NotContains(t, f.shared().Stderr.String(), "CONNECTION LIMIT", "a superuser has no limit")
}

func createRole(t *testing.T, pool *pgxpool.Pool, attributes string) string {
	t.Helper()
	role := "role_" + pool.Config().ConnConfig.Database
	execute(t, pool, "CREATE ROLE "+role+" "+attributes)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
	})
	return role
}

func urlOf(t *testing.T, pool *pgxpool.Pool, role string) string {
	t.Helper()
	u, err := url.Parse(dbtest.URL(pool))
	require.NoError(t, err)
	u.User = url.UserPassword(role, "limited")
	return u.String()
}
