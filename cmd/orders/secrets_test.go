package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/payments/stripetest"
)

// Even at LOG_LEVEL=debug, no log of a command contains a secret, an idempotency key, a customer's
// address or a card number. No row contains a secret. Package api tests the requests that are rejected,
// and the provider's faults.
func TestLogs_noSecrets(t *testing.T) {
	t.Parallel()
	l := newLeakTest(t)
	l.createOrders()
	l.api.Stop()
	l.environ = l.with("LOG_FORMAT=json")
	l.startAPI()
	l.awaitCustomers()
	l.sendReceipts()
	l.runMaintenance()
	rows := l.rows()
	l.breakDatabase()

	log := l.log()
	for _, line := range []string{"payment provider call", `"outcome":"requires_action"`, "payment_intent.requires_action", "background run", "request", "receipt retried", "event retried", "abandoned key completed", "completer pass", "reaper pass", "password authentication failed", "Invalid API Key provided: [removed]"} {
		require.Contains(t, log, line, "the test must cause this line")
	}
	for _, secret := range append(l.clientSecrets(), l.fixture.apiKey, "_secret_", "sk_test", "whsec", "canary-database", "canary-mail", "canary?token", "dGhpcyBp") {
		require.NotContains(t, rows, secret, "a row contains a secret")
	}
	secrets := append(l.clientSecrets(), l.fixture.apiKey, "canary", "CANARY", "4242424242424242", "_secret_", "ada@", "dGhpcyBp")
	for _, secret := range secrets {
		if i := strings.Index(log, secret); i >= 0 {
			require.Fail(t, "the log contains a secret", "%s, in …%s…", secret, log[max(0, i-300):min(len(log), i+100)])
		}
	}
	require.NotRegexp(t, `(?m) \w+=[0-9.]+(ns|µs|ms|[smh])\b`, log, "the name of a duration has its unit")
	for line := range strings.Lines(l.api.Stderr.String()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

type leakTest struct {
	*fixture
	api  *programtest.API
	mail *programtest.MailServer
	ran  []*programtest.Process
	sent int
}

func newLeakTest(t *testing.T) *leakTest {
	t.Helper()
	database := passwordDatabase(t, "canary-database")
	stripe, provider := programtest.FakeStripe(t)
	l := &leakTest{mail: programtest.NewMailServer(t, "canary-mail")}
	l.fixture = &fixture{t: t, stripe: stripe, environ: programtest.Environ(t,
		"DATABASE_URL="+database, "STRIPE_SECRET_KEY=sk_test_canary", "STRIPE_WEBHOOK_SECRET=whsec_canary", "STRIPE_API_BASE="+provider, "LISTEN_ADDR=127.0.0.1:0",
		"SMTP_URL=smtp://tester:canary-mail@"+l.mail.Address, "RECEIPTS_FROM=shop@example.com", "STRIPE_TIMEOUT=2s", "LOCK_TIMEOUT=3s", "LOG_LEVEL=debug",
		"EVENTS_URL=http://127.0.0.1:1/canary?token=canary", "EVENTS_SECRET=whsec_dGhpcyBpcyB0aGUgc2VjcmV0IG9mIGEgdGVzdA==")}
	l.run("migrate", "up")
	create := programtest.Start(t, l.environ, "accounts", "create", "--name", "Fixture")
	require.Zero(t, create.Wait())
	lines := strings.Fields(create.Stdout.String())
	l.apiKey = lines[len(lines)-1]
	create.Stdout.Text.Reset() // the only output that contains the key
	l.ran = append(l.ran, create)
	l.startAPI()
	return l
}

func (l *leakTest) startAPI() {
	l.t.Helper()
	l.api = l.serve(l.with("ADMIN_ADDR=127.0.0.1:0"), "--shutdown-delay", "0")
	l.ran = append(l.ran, l.api.Process)
}

func passwordDatabase(t *testing.T, password string) string {
	t.Helper()
	server, err := embeddedpg.Start(t.Context(), embeddedpg.Options{BinDir: programtest.ServerPrograms(t), Logger: programtest.Discard()})
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

func (l *leakTest) run(args ...string) int {
	l.t.Helper()
	p := programtest.Start(l.t, l.environ, args...)
	l.ran = append(l.ran, p)
	return p.Wait()
}

func challengedTea() string {
	return strings.Replace(programtest.Tea, "pm_card_visa", "pm_card_threeDSecure2Required", 1)
}

func (l *leakTest) challenge(prefer ...string) int {
	l.t.Helper()
	l.sent++
	response, err := l.api.Do(l.t.Context(), http.MethodPost, "/v1/orders", challengedTea(), http.Header{
		"Idempotency-Key": {fmt.Sprintf("canary-key-%05d", l.sent)}, "Prefer": prefer,
	})
	require.NoError(l.t, err)
	return response.Status
}

func (l *leakTest) deliver(eventType, id string) int {
	l.t.Helper()
	payload, signature, err := l.stripe.Event("whsec_canary", eventType, id)
	require.NoError(l.t, err)
	require.Contains(l.t, string(payload), id+"_secret_")
	response := l.api.MustDo(http.MethodPost, "/v1/webhooks/stripe", string(payload), http.Header{"Stripe-Signature": {signature}})
	return response.Status
}

func (l *leakTest) order(replacements ...string) int {
	l.t.Helper()
	body := strings.NewReplacer(replacements...).Replace(
		`{"email":"ada@canary.example.com","currency":"usd","payment_method":"pm_card_visa","metadata":{"card":"4242424242424242"},` +
			`"items":[{"sku":"tea","description":"canary","quantity":2,"unit_amount":1250}]}`)
	l.sent++
	response := l.api.MustOrder(fmt.Sprintf("canary-key-%05d", l.sent), body)
	return response.Status
}

func (l *leakTest) createOrders() {
	l.t.Helper()
	require.Equal(l.t, http.StatusCreated, l.order())
	require.Equal(l.t, http.StatusPaymentRequired, l.order("pm_card_visa", "pm_card_visa_chargeDeclined"))
	require.Equal(l.t, http.StatusPaymentRequired, l.order("pm_card_visa", "pm_card_authenticationRequired", `"metadata"`, `"off_session":true,"metadata"`))
	require.Equal(l.t, http.StatusUnprocessableEntity, l.order("pm_card_visa", "pm_4242424242424242"), "no such payment method")
	for _, endpoint := range []string{"POST /v1/payment_intents", confirmEndpoint} {
		l.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: endpoint})
		require.Equal(l.t, http.StatusServiceUnavailable, l.order())
	}
}

func (l *leakTest) awaitCustomers() {
	l.t.Helper()
	for _, customer := range []struct {
		approves bool
		event    string
		status   int
	}{
		{true, "payment_intent.succeeded", http.StatusCreated},
		{false, "payment_intent.payment_failed", http.StatusPaymentRequired},
	} {
		require.Equal(l.t, http.StatusAccepted, l.challenge())
		id, _, _ := strings.Cut(l.clientSecrets()[0], "_secret_")
		key := fmt.Sprintf("canary-key-%05d", l.sent)
		down := l.stripe.Inject(stripetest.Rule{Fault: stripetest.ErrorBefore, Endpoint: "GET /v1/payment_intents/{id}", Times: stripetest.Always})
		failed := l.api.MustOrder(key, challengedTea())
		down.Release()
		reused := l.api.MustOrder(key, programtest.Tea)
		orders := l.api.MustDo(http.MethodGet, "/v1/orders", "", nil)
		require.NotContains(l.t, failed.Body+reused.Body+orders.Body, "_secret_")
		require.Equal(l.t, http.StatusOK, l.deliver("payment_intent.requires_action", id))
		require.Zero(l.t, l.run("keys", "show", key))
		shown := &l.ran[len(l.ran)-1].Stdout
		require.NotContains(l.t, shown.String(), "_secret_")
		shown.Text.Reset()

		require.NoError(l.t, l.stripe.Authenticate(id, customer.approves))
		require.Equal(l.t, http.StatusOK, l.deliver(customer.event, id))
		final := l.api.MustOrder(key, challengedTea())
		require.NotContains(l.t, final.Body, "_secret_")
		require.Equal(l.t, customer.status, final.Status)
	}
	// Two stay with the completer.
	require.Equal(l.t, http.StatusAccepted, l.challenge())
	require.Equal(l.t, http.StatusAccepted, l.challenge("respond-async"))
	programtest.Eventually(l.t, func() bool { return strings.Contains(l.api.Stderr.String(), "background run") })

	for _, path := range []string{"/metrics", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2"} {
		_, shown := programtest.Get(l.t, l.api.Admin()+path)
		for _, secret := range append(l.clientSecrets(), l.apiKey, "_secret_", "sk_test", "whsec", "canary", "4242424242424242") {
			require.NotContains(l.t, shown, secret, path)
		}
	}
}

func (l *leakTest) connect() *pgx.Conn {
	l.t.Helper()
	conn, err := pgx.Connect(l.t.Context(), programtest.Value(l.environ, "DATABASE_URL"))
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (l *leakTest) sendReceipts() {
	l.t.Helper()
	right := l.environ
	l.environ = l.with("SMTP_URL=smtp://tester:canary-wrong@" + l.mail.Address)
	require.Equal(l.t, 1, l.run("worker", "--once"))
	require.Empty(l.t, l.mail.Received())
	l.environ = right
	l.mail.RejectNext(1)
	programtest.EventuallyEvery(l.t, 300*time.Millisecond, func() bool {
		l.run("worker", "--once")
		return len(l.mail.Received()) > 1
	})
}

func (l *leakTest) runMaintenance() {
	l.t.Helper()
	conn := l.connect()
	age := func() {
		_, err := conn.Exec(l.t.Context(), "UPDATE idempotency_keys SET last_run_at = last_run_at - interval '1 day'")
		require.NoError(l.t, err)
	}
	var abandoned []string
	rejecting := l.stripe.Inject(stripetest.Rule{Fault: stripetest.ErrorBefore, Endpoint: confirmEndpoint, Times: stripetest.Always})
	for range 4 {
		require.Equal(l.t, http.StatusServiceUnavailable, l.order())
		abandoned = append(abandoned, fmt.Sprintf("canary-key-%05d", l.sent))
	}
	age()
	right := l.environ
	require.Equal(l.t, 1, l.run("completer"))
	l.environ = right
	require.Zero(l.t, l.run("keys", "list"))
	require.Equal(l.t, 1, l.run("keys", "retry", abandoned[0], "--reason", "a test"))
	rejecting.Release()

	// These commands print the client's key and the response, but no other secret.
	for _, args := range [][]string{
		{"show", abandoned[1]},
		{"retry", abandoned[1], "--reason", "a test"},
		{"resolve", abandoned[2], "--reason", "a test"},
	} {
		require.Zero(l.t, l.run(append([]string{"keys"}, args...)...))
		shown := &l.ran[len(l.ran)-1].Stdout
		for _, secret := range append(l.clientSecrets(), l.apiKey, "_secret_", "sk_test", "whsec", "canary-database") {
			require.NotContains(l.t, shown.String(), secret)
		}
		shown.Text.Reset()
	}
	age()
	require.Zero(l.t, l.run("completer"))
	require.Zero(l.t, l.run("reaper", "--dry-run"))
	require.Zero(l.t, l.run("reaper"))
}

func (l *leakTest) breakDatabase() {
	l.t.Helper()
	conn := l.connect()
	for _, statement := range []string{
		"ALTER ROLE tester PASSWORD 'canary-changed'",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tester' AND pid <> pg_backend_pid()",
	} {
		_, err := conn.Exec(l.t.Context(), statement)
		require.NoError(l.t, err)
	}
	programtest.Eventually(l.t, func() bool {
		return l.order() >= http.StatusInternalServerError && l.api.Ready() == http.StatusServiceUnavailable
	})
	l.run("migrate", "status")
	l.api.Stop()

	for _, command := range []string{"serve", "migrate up", "accounts create --name x"} {
		programtest.RequireStartupError(l.t, l.environ, command, "password authentication failed")
	}
	u, err := url.Parse(programtest.Value(l.environ, "DATABASE_URL"))
	require.NoError(l.t, err)
	keywords := "host=" + u.Hostname() + " port=" + u.Port() + " dbname=orders user=tester password=canary-database sslmode=disable"
	programtest.RequireStartupError(l.t, l.with("DATABASE_URL="+keywords), "migrate status", "password authentication failed")
}

func (l *leakTest) rows() string {
	l.t.Helper()
	conn := l.connect()
	_, err := conn.Exec(l.t.Context(), "SET bytea_output = 'escape'")
	require.NoError(l.t, err)
	list := func(query string) []string {
		rows, err := conn.Query(l.t.Context(), query, pgx.QueryExecModeSimpleProtocol)
		require.NoError(l.t, err)
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(l.t, err)
		return texts
	}
	var all strings.Builder
	for _, table := range list("SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace") {
		for _, row := range list("SELECT t::text FROM " + table + " t") {
			all.WriteString(row + "\n")
		}
	}
	require.Contains(l.t, all.String(), "order.requires_action")
	require.Contains(l.t, all.String(), "payment_intent_authentication_failure", "the text of a stored response")
	return all.String()
}

func (l *leakTest) log() string {
	var all strings.Builder
	for _, p := range l.ran {
		require.True(l.t, p.HasExited())
		all.WriteString(p.Stdout.String() + p.Stderr.String())
	}
	return all.String()
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
