package main_test

import (
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/migrations/dbtest"
)

// requireStartupError checks that a command fails, prints the reasons and no secret, and
// leaves no process running.
func requireStartupError(t *testing.T, environ []string, command string, reasons ...string) {
	t.Helper()
	p := start(t, environ, strings.Fields(command)...)
	require.Equal(t, 1, p.wait())
	require.Regexp(t, `(?m)^orders: `, p.stderr.String())
	for _, reason := range reasons {
		require.Contains(t, p.stderr.String(), reason)
	}
	require.NotContains(t, p.stderr.String()+p.stdout.String(), "canary")
	p.requireNoProcessLeft()
}

func TestStartupError(t *testing.T) {
	t.Parallel()
	const unreachable = "DATABASE_URL=postgres://u:canary@127.0.0.1:1/orders"
	for name, test := range map[string]struct {
		settings []string
		commands string
		reasons  []string
	}{
		"several invalid variables": {
			[]string{"DATABASE_URL=postgres://u:canary@h:99999/x", "STRIPE_SECRET_KEY=sk_live_canary", "LOG_FORMAT=xml", "RECEIPTS_FROM=x"},
			"serve, worker --once, completer, reaper, keys list, keys show K, keys retry K --reason x, migrate up, accounts create --name x, dev",
			[]string{"orders: wrong configuration:\n  DATABASE_URL: cannot be parsed", "\n  LOG_FORMAT: "},
		},
		"durations out of order": { // R9: every command that reads keys checks them
			[]string{unreachable, "STRIPE_SECRET_KEY=sk_test_1", "LOCK_TIMEOUT=20s", "KEY_RETENTION=72s"},
			"serve, completer, reaper, reaper --dry-run, keys list, keys show K, keys retry K --reason x, keys resolve K --reason x",
			[]string{"\n  durations out of order: STRIPE_TIMEOUT 20s must be less than LOCK_TIMEOUT 20s" +
				"\n  durations out of order: CHARGE_WINDOW 24h0m0s must be less than KEY_RETENTION 1m12s\n"},
		},
		"live key": {
			[]string{"STRIPE_SECRET_KEY=sk_live_canary"}, "dev", []string{"STRIPE_SECRET_KEY: is not a test key"},
		},
		"outdated schema": {
			[]string{"DATABASE_URL=" + dbtest.URL(dbtest.Empty(t)), "STRIPE_SECRET_KEY=sk_test_1", "LISTEN_ADDR=127.0.0.1:0"},
			"serve, worker, completer, reaper, keys list, accounts create --name x",
			[]string{"run `orders migrate up`"},
		},
		"unreachable database": {
			[]string{unreachable, "STRIPE_SECRET_KEY=sk_test_1"},
			"serve, worker, migrate up, accounts create --name x, dev",
			[]string{"connect to the database (DATABASE_URL): "},
		},
	} {
		for command := range strings.SplitSeq(test.commands, ", ") {
			t.Run(name+"/"+command, func(t *testing.T) {
				t.Parallel()
				requireStartupError(t, environ(t, test.settings...), command, test.reasons...)
			})
		}
	}
}

func TestStartupError_portInUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	address := listener.Addr().String()
	reason := "orders: LISTEN_ADDR: another program listens on " + address + ": stop it or choose another address\n"
	requireStartupError(t, f.with("LISTEN_ADDR="+address), "serve", reason)
	requireStartupError(t, f.with("LISTEN_ADDR="+address, "DATABASE_URL=", "STRIPE_SECRET_KEY=", "STRIPE_API_BASE="), "dev", reason)
}

// The wait for an unresponsive server is bounded, and a log line names the server first.
func TestStartupError_unresponsiveDatabase(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	env := environ(t, "DATABASE_URL=postgres://u:canary@"+listener.Addr().String()+"/orders?sslmode=disable", "STRIPE_SECRET_KEY=sk_test_1")
	p := start(t, env, "serve")
	p.waitFor(&p.stderr, "connecting to the database.*host=127.0.0.1")
	require.Equal(t, 1, p.wait())
	require.NotContains(t, p.stderr.String(), "canary")
}

func TestStartupError_wrongPassword(t *testing.T) {
	t.Parallel()
	right := passwordDatabase(t, "canary-right")
	u, err := url.Parse(right)
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), "canary-wrong")
	env := environ(t, "DATABASE_URL="+u.String(), "STRIPE_SECRET_KEY=sk_test_1")
	for _, command := range []string{"serve", "migrate up", "accounts create --name x", "dev"} {
		requireStartupError(t, env, command, "password authentication failed")
	}
	// The same in keyword/value notation.
	env = environ(t, "DATABASE_URL=host="+u.Hostname()+" port="+u.Port()+" dbname=orders user=tester password=canary-wrong sslmode=disable")
	requireStartupError(t, env, "migrate status", "password authentication failed")
}

// passwordDatabase returns the URL of an empty database on a new server, with a password
// in it.
func passwordDatabase(t *testing.T, password string) string {
	t.Helper()
	server, err := embeddedpg.Start(t.Context(), embeddedpg.Options{BinDir: serverPrograms(t), Logger: discard()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	admin, err := pgx.Connect(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	defer admin.Close(t.Context())
	for _, statement := range []string{
		"CREATE ROLE tester LOGIN PASSWORD '" + password + "'",
		"CREATE DATABASE orders OWNER tester",
	} {
		_, err := admin.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	u, err := url.Parse(server.URL("orders"))
	require.NoError(t, err)
	u.User = url.UserPassword("tester", password)
	return u.String()
}
