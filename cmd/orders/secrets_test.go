package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/payments/stripetest"
)

// leakTest collects the logs of all commands.
type leakTest struct {
	*fixture
	api  *programtest.API
	ran  []*programtest.Process
	sent int
}

// passwordDatabase is on a server of its own, because roles belong to the server.
func passwordDatabase(t *testing.T, password string) string {
	t.Helper()
	server, admin := newServer(t)
	execute(t, admin, "CREATE ROLE tester LOGIN PASSWORD '"+password+"'", "CREATE DATABASE orders OWNER tester")
	u, err := url.Parse(server.URL("orders"))
	require.NoError(t, err)
	u.User = url.UserPassword("tester", password)
	return u.String()
}

func (l *leakTest) startAPI(format string) {
	l.t.Helper()
	l.api = l.serve(l.with("ADMIN_ADDR=127.0.0.1:0", "LOG_FORMAT="+format), "--shutdown-delay", "0")
	l.ran = append(l.ran, l.api.Process)
}

// run runs a command. What it prints for an operator is searched for secrets, but may contain the client's key and the response.
func (l *leakTest) run(want int, args ...string) string {
	l.t.Helper()
	p := programtest.Start(l.t, l.environ, args...)
	l.ran = append(l.ran, p)
	require.Equal(l.t, want, p.Wait(), p.Stderr.String())
	stdout := p.Stdout.String()
	p.Stdout.Text.Reset()
	return stdout
}

func (l *leakTest) order(want int, replacements ...string) (key string) {
	l.t.Helper()
	l.sent++
	key = fmt.Sprintf("canary-key-%05d", l.sent)
	require.Equal(l.t, want, l.api.MustOrder(key, leakBody(replacements...)).Status)
	return key
}

func leakBody(replacements ...string) string {
	return strings.NewReplacer(replacements...).Replace(
		`{"email":"ada@canary.example.com","currency":"usd","payment_method":"pm_card_visa","metadata":{"card":"4242424242424242"},` +
			`"items":[{"sku":"tea","description":"canary","quantity":2,"unit_amount":1250}]}`)
}

func (l *leakTest) clientSecrets() []string {
	l.t.Helper()
	var secrets []string
	list := programtest.ListIntents(l.t, programtest.Value(l.environ, "STRIPE_API_BASE"), "sk_test_canary")
	for _, match := range regexp.MustCompile(`"client_secret":\s*"([^"]+)"`).FindAllStringSubmatch(list, -1) {
		secrets = append(secrets, match[1])
	}
	require.NotEmpty(l.t, secrets)
	return secrets
}

// requireNone requires that a text has no secret, and nothing else that must not be there.
func (l *leakTest) requireNone(text string, further ...string) {
	l.t.Helper()
	for _, secret := range append(append(l.clientSecrets(), l.apiKey, "_secret_", "sk_test", "whsec", "canary-database", "canary-mail", "canary?token", "dGhpcyBp"), further...) {
		if i := strings.Index(text, secret); i >= 0 {
			require.Fail(l.t, "a secret", "%s, in …%s…", secret, text[max(0, i-300):min(len(text), i+100)])
		}
	}
}

// Even at LOG_LEVEL=debug, no log of a command contains a secret, an idempotency key, a customer's
// address or a card number. No row contains a secret. Package api tests the requests that are rejected,
// webhooks, background runs, and the provider's faults.
func TestLogs_noSecrets(t *testing.T) {
	t.Parallel()
	stripe, provider := programtest.FakeStripe(t)
	mail := programtest.NewMailServer(t, "canary-mail")
	l := &leakTest{fixture: &fixture{t: t, stripe: stripe, environ: programtest.Environ(t,
		"DATABASE_URL="+passwordDatabase(t, "canary-database"), "STRIPE_SECRET_KEY=sk_test_canary", "STRIPE_WEBHOOK_SECRET=whsec_canary", "STRIPE_API_BASE="+provider,
		"LISTEN_ADDR=127.0.0.1:0", "SMTP_URL=smtp://tester:canary-mail@"+mail.Address, "RECEIPTS_FROM=shop@example.com", "STEP_TIMEOUT=2s", "LEASE_DURATION=3s",
		"LOG_LEVEL=debug", "EVENTS_URL=http://127.0.0.1:1/canary?token=canary", "EVENTS_SECRET=whsec_dGhpcyBpcyB0aGUgc2VjcmV0IG9mIGEgdGVzdA==")}}
	l.run(0, "migrate", "up")
	created := strings.Fields(l.run(0, "accounts", "create", "--name", "Fixture"))
	l.apiKey = created[len(created)-1]
	var err error
	l.pool, err = pgxpool.New(t.Context(), programtest.Value(l.environ, "DATABASE_URL"))
	require.NoError(t, err)
	t.Cleanup(l.pool.Close)

	l.startAPI("text")
	l.order(http.StatusCreated)
	l.order(http.StatusPaymentRequired, "pm_card_visa", "pm_card_visa_chargeDeclined")
	l.order(http.StatusUnprocessableEntity, "pm_card_visa", "pm_4242424242424242")
	stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: confirmEndpoint})
	l.order(http.StatusServiceUnavailable)
	l.api.Stop()

	// A customer must approve.
	l.startAPI("json")
	asking := []string{"pm_card_visa", "pm_card_threeDSecure2Required"}
	key := l.order(http.StatusAccepted, asking...)
	intent, _, _ := strings.Cut(l.clientSecrets()[0], "_secret_")
	l.requireNone(l.run(0, "keys", "show", key))
	require.NoError(t, stripe.Authenticate(intent, true))
	final := l.api.MustOrder(key, leakBody(asking...))
	require.Equal(t, http.StatusCreated, final.Status)
	l.requireNone(final.Body)
	for _, path := range []string{"/metrics", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2"} {
		_, shown := programtest.Get(t, l.api.Admin()+path)
		l.requireNone(shown, "canary", "4242424242424242")
	}

	right := l.environ
	l.environ = l.with("SMTP_URL=smtp://tester:canary-wrong@" + mail.Address)
	l.run(1, "worker", "--once")
	l.environ = right
	mail.RejectNext(1)
	l.run(1, "worker", "--once")

	rejecting := stripe.Inject(stripetest.Rule{Fault: stripetest.ErrorBefore, Endpoint: confirmEndpoint, Times: stripetest.Always})
	abandoned := []string{l.order(http.StatusServiceUnavailable), l.order(http.StatusServiceUnavailable), l.order(http.StatusServiceUnavailable)}
	execute(t, l.pool, "UPDATE idempotency_keys SET updated_at = updated_at - interval '1 day'")
	l.run(1, "completer")
	l.run(1, "keys", "retry", abandoned[0], "--reason", "a test")
	rejecting.Release()
	l.requireNone(l.run(0, "keys", "list") + l.run(0, "keys", "retry", abandoned[1], "--reason", "a test") + l.run(0, "keys", "resolve", abandoned[2], "--reason", "a test"))
	execute(t, l.pool, "UPDATE idempotency_keys SET updated_at = updated_at - interval '1 day'")
	l.run(0, "completer")
	l.run(0, "reaper")

	var rows strings.Builder
	for _, table := range collect(t, l.pool, "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace") {
		for _, row := range collect(t, l.pool, "SELECT t::text FROM "+table+" AS t") {
			rows.WriteString(row + "\n")
		}
	}
	for _, body := range collect(t, l.pool, "SELECT encode(response_body, 'escape') FROM idempotency_keys WHERE response_body IS NOT NULL") {
		rows.WriteString(body + "\n")
	}
	require.Contains(t, rows.String(), "order.requires_action")
	require.Contains(t, rows.String(), "/problems/payment-declined", "the text of a stored response")
	l.requireNone(rows.String())

	// The database rejects the password.
	execute(t, l.pool, "ALTER ROLE tester PASSWORD 'canary-changed'",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tester' AND pid <> pg_backend_pid()")
	programtest.Eventually(t, func() bool {
		return l.api.MustOrder("canary-key-without-a-database", leakBody()).Status == http.StatusServiceUnavailable && l.api.Ready() == http.StatusServiceUnavailable
	})
	l.api.Stop()
	programtest.RequireStartupError(t, l.environ, "serve", "password authentication failed")

	var log strings.Builder
	for _, p := range l.ran {
		require.True(t, p.HasExited())
		log.WriteString(p.Stdout.String() + p.Stderr.String())
	}
	for _, line := range []string{"payment provider call", `"outcome":"requires_action"`, "request", "receipt retried", "event retried", "abandoned key completed", "abandoned keys not completed: ", "completer pass", "reaper pass", "password authentication failed", "Invalid API Key provided: [removed]"} {
		require.Contains(t, log.String(), line, "the test must cause this line")
	}
	l.requireNone(log.String(), "canary", "CANARY", "4242424242424242", "ada@")
	require.NotRegexp(t, `(?m) \w+=[0-9.]+(ns|µs|ms|[smh])\b`, log.String(), "the name of a duration has its unit")
	for line := range strings.Lines(l.api.Stderr.String()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

func collect(t *testing.T, pool *pgxpool.Pool, query string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), query)
	require.NoError(t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return texts
}
