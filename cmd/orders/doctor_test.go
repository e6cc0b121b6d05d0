package main_test

import (
	"errors"
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
	_, provider := standIn(t)
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

	allPass, err := os.ReadFile("testdata/doctor.txt") // docs/doctor.md shows it
	require.NoError(t, err)
	code, report, stderr := doctor()
	require.Equal(t, string(allPass), report)
	require.Zero(t, code)
	require.Empty(t, stderr)

	t.Run("not durable", func(t *testing.T) {
		t.Parallel()
		code, report, _ := doctor("DATABASE_URL=" + dbtest.URL(dbtest.New(t)))
		require.Equal(t, 1, code)
		require.Contains(t, report, "\n✗ durability     fsync, full_page_writes, synchronous_commit off: a crash may lose orders")
	})
	t.Run("unreachable hosts", func(t *testing.T) { // the driver's error has a line for each
		t.Parallel()
		code, report, _ := doctor("DATABASE_URL=postgres://user@127.0.0.1:1,127.0.0.1:2/orders")
		require.Equal(t, 1, code)
		require.Contains(t, report, "\n✗ database       connect to the database (DATABASE_URL): ")
	})
	t.Run("warnings only", func(t *testing.T) {
		t.Parallel()
		code, report, stderr := doctor("SMTP_URL=")
		require.Zero(t, code)
		require.Contains(t, report, "\n! mail           neither SMTP_URL nor RECEIPTS_DIR is set → set SMTP_URL, without which orders worker does not start\n")
		require.Empty(t, stderr)
	})
	t.Run("receipts in a folder", func(t *testing.T) {
		t.Parallel()
		code, report, _ := doctor("SMTP_URL=", "RECEIPTS_DIR="+t.TempDir())
		require.Zero(t, code)
		require.Contains(t, report, "\n! mail           receipts are written to files → set SMTP_URL to send them\n")
	})
	t.Run("no folder for receipts", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "receipts")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		code, report, stderr := doctor("SMTP_URL=", "RECEIPTS_DIR="+file)
		require.Equal(t, 1, code)
		require.Regexp(t, `\n✗ mail  .*not a directory.* → make the folder writable, or set SMTP_URL\n`, report)
		require.Equal(t, "orders: failed checks: 1\n", stderr)
	})
	t.Run("invalid variables", func(t *testing.T) {
		t.Parallel()
		code, report, stderr := doctor("STRIPE_SECRET_KEY=pk_canary", "LOCK_TIMEOUT=10s", "SMTP_URL=ftp://canary", "STRIPE_WEBHOOK_SECRET=canary")
		require.Equal(t, 1, code)
		require.Equal(t, "orders: failed checks: 4\n", stderr)
		for _, part := range []string{
			"✗ configuration  STRIPE_SECRET_KEY: is not a secret key, which begins with sk_ or rk_, not with sk_org_ (its value is not shown); get a test key",
			"✗ configuration  STRIPE_WEBHOOK_SECRET: is not a signing secret",
			"✗ configuration  SMTP_URL: receipts: SMTP URL: want smtp://host:port or smtp://user:password@host:port, or smtps://, with special characters percent-encoded and nothing after the port",
			"✗ configuration  durations out of order: STRIPE_TIMEOUT 20s must be less than LOCK_TIMEOUT 10s",
			"✓ migrations     all applied",
		} {
			require.Contains(t, report, part)
		}
		require.NotContains(t, report, " stripe ", "its variable is invalid")
		require.NotContains(t, report, " mail ")
	})
}
