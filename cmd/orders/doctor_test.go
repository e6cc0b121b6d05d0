package main_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/migrations/dbtest"
)

func normalize(report string) string {
	return regexp.MustCompile(`127\.0\.0\.1(:\d+)?`).ReplaceAllString(report, "ADDRESS")
}

// The server is durable, and every secret is a canary.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server, err := embeddedpg.Start(t.Context(), embeddedpg.Options{
		BinDir: serverPrograms(t), Logger: discard(),
		Settings: map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	database, err := url.Parse(server.URL("postgres"))
	require.NoError(t, err)
	admin, err := pgx.Connect(t.Context(), database.String())
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "ALTER ROLE postgres PASSWORD 'canary-database'")
	require.NoError(t, errors.Join(err, admin.Close(t.Context())))
	database.User = url.UserPassword(database.User.Username(), "canary-database")
	_, provider := fakeStripe(t)
	env := environ(t, "DATABASE_URL="+database.String(), "STRIPE_SECRET_KEY=sk_test_canary", "STRIPE_WEBHOOK_SECRET=whsec_canary",
		"STRIPE_API_BASE="+provider, "SMTP_URL=smtp://tester:canary-mail@"+newMailServer(t, "canary-mail").address, "RECEIPTS_FROM=shop@example.com", "LOG_LEVEL=debug")
	succeed(t, env, "migrate", "up")

	doctor := func(settings ...string) (code int, report, stderr string) {
		code, report, stderr = run(t, append(env[:len(env):len(env)], settings...), "doctor")
		require.NotContains(t, report+stderr, "canary")
		for line := range strings.Lines(report) {
			require.Regexp(t, `^[✓!✗] `, line, "one line for each result")
		}
		return code, normalize(report), stderr
	}

	allPass, err := os.ReadFile("testdata/doctor.txt")
	require.NoError(t, err)
	code, report, stderr := doctor()
	require.Equal(t, string(allPass), report)
	require.Zero(t, code)
	require.Empty(t, stderr)

	file := filepath.Join(t.TempDir(), "receipts")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, test := range map[string]struct {
		settings []string
		code     int
		report   []string
	}{
		"not durable": {[]string{"DATABASE_URL=" + dbtest.URL(dbtest.New(t))}, 1, []string{
			"\n✗ durability     fsync, full_page_writes, synchronous_commit off: a crash may lose orders",
		}},
		"unreachable hosts": {[]string{"DATABASE_URL=postgres://user@127.0.0.1:1,127.0.0.1:2/orders"}, 1, []string{
			"\n✗ database       connect to the database (DATABASE_URL): ", // the driver's error has a line for each
		}},
		"warnings only": {[]string{"SMTP_URL="}, 0, []string{
			"\n! mail           neither SMTP_URL nor RECEIPTS_DIR is set → set SMTP_URL, without which orders worker does not start\n",
		}},
		"receipts in a folder": {[]string{"SMTP_URL=", "RECEIPTS_DIR=" + t.TempDir()}, 0, []string{
			"\n! mail           receipts are written to files → set SMTP_URL to send them\n",
		}},
		"no folder for receipts": {[]string{"SMTP_URL=", "RECEIPTS_DIR=" + file}, 1, []string{
			"\n✗ mail ", "not a directory", " → make the folder writable, or set SMTP_URL\n",
		}},
		"invalid variables": {[]string{"STRIPE_SECRET_KEY=pk_canary", "LOCK_TIMEOUT=10s", "SMTP_URL=ftp://canary", "STRIPE_WEBHOOK_SECRET=canary"}, 1, []string{
			"✗ configuration  STRIPE_SECRET_KEY: is not a secret key, ", "✗ configuration  STRIPE_WEBHOOK_SECRET: is not a signing secret",
			"✗ configuration  SMTP_URL: receipts: SMTP URL: want ", "✗ configuration  durations out of order: STRIPE_TIMEOUT 20s must be less than LOCK_TIMEOUT 10s",
			"✓ migrations     all applied",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, report, stderr := doctor(test.settings...)
			require.Equal(t, test.code, code)
			for _, part := range test.report {
				require.Contains(t, report, part)
			}
			failed := strings.Count("\n"+report, "\n✗ ")
			require.Equal(t, failed > 0, stderr == fmt.Sprintf("orders: failed checks: %d\n", failed), stderr)
		})
	}
}
