package main_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

// requireClaims requires the marks of the claims that the demo has checked, in their order.
func requireClaims(t *testing.T, stdout, marks string) {
	t.Helper()
	var found strings.Builder
	for _, line := range regexp.MustCompile(`(?m)^ ([✓✗–]) `).FindAllStringSubmatch(stdout, -1) {
		found.WriteString(line[1])
	}
	require.Equal(t, marks, found.String(), stdout)
}

func requireNoTempFiles(t *testing.T, environ []string) {
	t.Helper()
	left, err := os.ReadDir(programtest.Value(environ, "TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// The demo needs no setup, and not even a home folder.
func TestDemo(t *testing.T) {
	t.Parallel()
	env := append(programtest.Environ(t), "HOME=", "LISTEN_ADDR=127.0.0.1:0")
	p := programtest.Start(t, env, "demo", "--console")
	p.WaitFor(&p.Stdout, "^playground demo: ")
	p.WaitFor(&p.Stderr, "listening")
	p.WaitFor(&p.Stdout, "Send the same line again")
	stdout := p.Stdout.String()
	require.Contains(t, stdout, "On a private PostgreSQL, started in ")
	require.Contains(t, stdout, "a fake Stripe")
	requireClaims(t, stdout, "✓✓✓✓✓✓✓✓✓✓✓")
	require.Contains(t, stdout, "8 mails for 8 paid orders\n")
	require.Contains(t, stdout, "8 events for 8 paid orders\n")

	openConsole(p).Stop()
	requireNoTempFiles(t, env)
	p.RequireNoProcessLeft()
}

// stripeMode returns an environment with a provider, a database, and invalid settings of
// other commands, which the demo must ignore.
func stripeMode(t *testing.T, database, provider string) []string {
	t.Helper()
	return programtest.Environ(t, "DATABASE_URL="+database, "STRIPE_SECRET_KEY=sk_test_demo", "STRIPE_API_BASE="+provider,
		"LEASE_DURATION=1ms", "SMTP_URL=smtp://127.0.0.1:1", "LISTEN_ADDR=127.0.0.1:1", "LOG_FORMAT=xml")
}

func TestDemo_onStripe(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	stripe, provider := programtest.FakeStripe(t)
	env := stripeMode(t, dbtest.URL(pool), provider)
	p := programtest.Start(t, env, "demo")
	// The demo waits for the lease of the process that it kills, which ends after 22 s. This ends it at once.
	programtest.Eventually(t, func() bool {
		_, err := pool.Exec(t.Context(), "UPDATE idempotency_keys SET locked_at = now() - interval '1 hour' WHERE locked_at < now() - interval '3 seconds'")
		require.NoError(t, err)
		return p.HasExited()
	})
	require.Zero(t, p.Wait())
	stdout := p.Stdout.String()
	require.Empty(t, p.Stderr.String())
	require.Contains(t, stdout, "On the database of DATABASE_URL, with ")
	requireClaims(t, stdout, "✓✓✓✓✓✓✓––✓✓")
	require.Contains(t, stdout, "skipped: ")

	require.Contains(t, stdout, "6 mails for 6 paid orders\n")
	require.Contains(t, stdout, "6 events for 6 paid orders\n")
	require.Len(t, stripe.Charges(), 6)
	require.Empty(t, stripe.OrdersChargedTwice())
	require.Equal(t, map[string]int64{"usd": 6 * 2500}, stripe.MoneyMoved())
	var made, paid int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*), count(paid_at) FROM orders").Scan(&made, &paid))
	require.Equal(t, []int{7, 6}, []int{made, paid})
	requireNoTempFiles(t, env)
	p.RequireNoProcessLeft()
}

func TestDemo_doubleCharge(t *testing.T) {
	t.Parallel()
	stripe, _ := programtest.FakeStripe(t)
	env := stripeMode(t, dbtest.URL(dbtest.New(t)), doubleCharger(t, stripe))
	p := programtest.Start(t, env, "demo")
	require.Equal(t, 1, p.Wait())
	requireClaims(t, p.Stdout.String(), "✗")
	require.NotContains(t, p.Stdout.String(), "mails")
	require.NotEmpty(t, stripe.OrdersChargedTwice())

	match := regexp.MustCompile(`^playground: an order is charged: 1 charge in the provider’s list: observed 2 charges, \$50\.00\nthe log of the API is (\S+)\n$`).
		FindStringSubmatch(p.Stderr.String())
	require.NotNil(t, match, p.Stderr.String())
	require.FileExists(t, match[1])
	p.RequireNoProcessLeft()
}

func TestDemo_startupError(t *testing.T) {
	t.Parallel()
	programtest.RequireStartupError(t, stripeMode(t, dbtest.URL(dbtest.New(t)), "http://127.0.0.1:1"), "demo",
		"playground: http://127.0.0.1:1 cannot be used: ", "connection refused")
	programtest.RequireStartupError(t, programtest.Environ(t, "STRIPE_SECRET_KEY=sk_live_canary"), "demo", "STRIPE_SECRET_KEY: is not a test key")
}

// doubleCharger is a provider that executes each POST for a second intent too.
func doubleCharger(t *testing.T, stripe *stripetest.Server) string {
	t.Helper()
	second := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			again := r.Clone(r.Context())
			r.Body, again.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
			again.Header.Set("Idempotency-Key", "second-"+r.Header.Get("Idempotency-Key"))
			if strings.HasSuffix(r.URL.Path, "/confirm") {
				again.URL.Path = "/v1/payment_intents/" + second + "/confirm"
			}
			recorder := httptest.NewRecorder()
			stripe.ServeHTTP(recorder, again)
			second = regexp.MustCompile(`"id":\s*"(pi_[^"]+)"`).FindStringSubmatch(recorder.Body.String())[1]
		}
		stripe.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
