package main_test

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/embeddedpg"
)

// settle replaces what is different on each machine.
func settle(report string) string {
	report = regexp.MustCompile(`PostgreSQL [^,]*, a`).ReplaceAllString(report, "PostgreSQL N, a")
	return regexp.MustCompile(`127\.0\.0\.1(:\d+)?`).ReplaceAllString(report, "ADDRESS")
}

// One server that a crash takes nothing from, its secrets canaries: all is well,
// then one thing after the other is not.
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
	database.User = url.UserPassword(database.User.Username(), "canary-database") // which it does not ask for
	_, provider := standIn(t)
	env := environ(t, "DATABASE_URL="+database.String(), "STRIPE_SECRET_KEY=sk_test_canary", "STRIPE_WEBHOOK_SECRET=whsec_canary",
		"STRIPE_API_BASE="+provider, "SMTP_URL=smtp://shop:canary-mail@"+newMailServer(t, "canary-mail").address, "LOG_LEVEL=debug")
	code, _, stderr := run(t, env, "migrate", "up")
	require.Zero(t, code, stderr)

	doctor := func(settings ...string) (code int, report, stderr string) {
		code, report, stderr = run(t, append(env[:len(env):len(env)], settings...), "doctor")
		require.NotContains(t, report+stderr, "canary")
		return code, settle(report), stderr
	}

	allIsWell, err := os.ReadFile("testdata/doctor.txt") // docs/doctor.md shows it
	require.NoError(t, err)
	code, report, stderr := doctor()
	require.Equal(t, string(allIsWell), report)
	require.Zero(t, code)
	require.Empty(t, stderr)

	t.Run("warnings do not fail", func(t *testing.T) {
		t.Parallel()
		code, report, stderr := doctor("STRIPE_WEBHOOK_SECRET=", "SMTP_URL=")
		require.Zero(t, code)
		require.Contains(t, report, "\n! webhook        off, for STRIPE_WEBHOOK_SECRET is not set")
		require.Regexp(t, `\n! mail           receipts become files in /\S+/receipts → set SMTP_URL to have them sent\n`, report)
		require.Empty(t, stderr)
	})
	t.Run("no folder for receipts", func(t *testing.T) {
		t.Parallel()
		home := value(environ(t), "HOME")
		for _, cache := range []string{".cache", "Library/Caches"} {
			folder := filepath.Join(home, cache, "orders-api")
			require.NoError(t, os.Mkdir(folder, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "receipts"), nil, 0o600)) // where a folder would be
		}
		code, report, stderr := doctor("SMTP_URL=", "HOME="+home)
		require.Equal(t, 1, code)
		require.Regexp(t, `\n✗ mail  .*not a directory.* → make the folder writable, or set SMTP_URL\n`, report)
		require.Equal(t, "orders: faults found: 1 (and warnings: 0)\n", stderr)
	})
	t.Run("a wrong variable hides nothing else", func(t *testing.T) {
		t.Parallel()
		code, report, stderr := doctor("STRIPE_SECRET_KEY=pk_canary", "LOCK_TIMEOUT=10s", "SMTP_URL=ftp://canary", "STRIPE_WEBHOOK_SECRET=canary")
		require.Equal(t, 1, code)
		require.Equal(t, "orders: faults found: 4 (and warnings: 0)\n", stderr)
		for _, part := range []string{
			"✗ configuration  STRIPE_SECRET_KEY: is not a secret key, which begins with sk_ or rk_ (its value is not shown) → get a test key",
			"✗ configuration  STRIPE_WEBHOOK_SECRET: is not a signing secret",
			"✗ configuration  SMTP_URL: receipts: SMTP URL: want smtp://user:password@host:port or smtps://…: unknown scheme → orders help env says what is expected",
			"✗ configuration  durations out of order: STRIPE_TIMEOUT 20s !< LOCK_TIMEOUT 10s",
			"✓ migrations     all applied",
			"- keys           not looked at, since the durations are wrong",
			"- stripe         not looked at, since STRIPE_SECRET_KEY or STRIPE_API_BASE is wrong",
			"- webhook        not looked at, since STRIPE_WEBHOOK_SECRET is wrong",
			"- mail           not looked at, since SMTP_URL or RECEIPTS_FROM is wrong",
		} {
			require.Contains(t, report, part)
		}
	})
	t.Run("a wrong password", func(t *testing.T) {
		t.Parallel()
		right, err := url.Parse(passwordDatabase(t, "canary-right"))
		require.NoError(t, err)
		right.User = url.UserPassword("shop", "canary-wrong")
		code, report, _ := doctor("DATABASE_URL=" + right.String())
		require.Equal(t, 1, code)
		require.Contains(t, report, "\n✗ database       ")
		require.Contains(t, report, "password authentication failed")
		require.Contains(t, report, "\n- migrations     not looked at, for there is no connection\n")
		require.Contains(t, report, "\n✓ mail ")
	})
}
