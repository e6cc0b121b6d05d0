package main_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

func startDev(t *testing.T, environ []string, flags ...string) (*api, string) {
	t.Helper()
	p := start(t, environ, append([]string{"dev"}, flags...)...)
	p.waitFor(&p.stdout, "^orders dev: ")
	p.waitFor(&p.stdout, "Send the same line again")
	p.waitFor(&p.stderr, "listening")
	a := &api{process: p}
	a.base = p.waitFor(&p.stdout, `Orders API +(http://\S+)`)[1]
	a.key = p.waitFor(&p.stdout, `API key +(ok_\S+)`)[1]
	return a, p.waitFor(&p.stdout, `(?s)Create an order:\s+(curl .*?)\n\n`)[1]
}

func sendCurl(t *testing.T, line string) apiResponse {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "curl() { printf '%s\\0' \"$@\"; }\n"+line).Output()
	require.NoError(t, err)
	args := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	a := &api{process: &process{t: t}}
	header := http.Header{}
	var body string
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch arg {
		case "-i":
		case "-H":
			name, value, _ := strings.Cut(args[0], ": ")
			header.Set(name, value)
			args = args[1:]
		case "-d":
			body = args[0]
			args = args[1:]
		default:
			require.Empty(t, a.base, "curl %s", arg)
			a.base = arg
		}
	}
	response := a.mustDo(http.MethodPost, "", body, header)
	return response
}

// One private PostgreSQL after another, because each start of one takes a second.
func TestDev(t *testing.T) {
	t.Parallel()
	env := environ(t, "LISTEN_ADDR=127.0.0.1:0")
	a, curl := startDev(t, env)
	first := sendCurl(t, curl)
	id := requirePaid(t, first)
	again := sendCurl(t, curl)
	require.Equal(t, first.body, again.body)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))

	page := a.fakeStripe()
	status, _ := getAs(t, "localhost", page)
	require.Equal(t, http.StatusOK, status)
	status, _ = getAs(t, "evil.example", page)
	require.Equal(t, http.StatusMisdirectedRequest, status)
	folder := a.waitFor(&a.stderr, `\.eml files.*folder=(\S+)`)[1]
	require.Contains(t, folder, value(env, "HOME"))
	require.Contains(t, a.stdout.String(), "Data         "+filepath.Dir(folder)+" ", "each clone has its receipts")
	eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(folder, "receipt-"+id+".eml"))
		return err == nil
	})
	requireWebhooks(t, a)

	data := a.waitFor(&a.stdout, `Data +(\S+) `)[1]
	require.Contains(t, data, value(env, "HOME"))
	for _, command := range []string{"dev", "dev --reset"} {
		code, _, stderr := run(t, env, strings.Fields(command)...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "orders: another orders dev uses the data in "+data+": stop it, "+
			"or set DATABASE_URL to another database\n")
	}

	// After kill -9, the next start keeps the key and the data, and the fake knows all payments.
	a.signal(syscall.SIGKILL)
	a.wait()
	a.requireNoProcessLeft()
	b, nextCurl := startDev(t, env)
	require.Equal(t, a.key, b.key)
	for _, id := range []string{id, requirePaid(t, sendCurl(t, nextCurl))} {
		refund, err := b.do(t.Context(), http.MethodPost, "/v1/orders/"+id+"/refunds", `{"amount":500}`,
			http.Header{"Idempotency-Key": {"refund-of-" + id}})
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, refund.status, refund.body)
	}
	code, stdout, stderr := run(t, append(slices.Clone(env), "STRIPE_SECRET_KEY=sk_test_fake", "STRIPE_API_BASE="+b.fakeStripe(),
		"DATABASE_URL="+b.waitFor(&b.stdout, `PostgreSQL +psql '(\S+)'`)[1]), "reconcile", "--lost-rows")
	require.Zero(t, code, stdout+stderr)
	require.Contains(t, stdout, "Compared 4 intents, 4 orders and 3 refunds ")
	b.stop()
	b.requireNoProcessLeft()
	stopping, stopped := strings.Index(b.stderr.String(), "msg=\"stopping"), strings.Index(b.stderr.String(), "msg=stopped")
	require.True(t, 0 < stopping && stopping < stopped)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	busy := listener.Addr().String()
	requireStartupError(t, append(slices.Clone(env), "LISTEN_ADDR="+busy), "dev", portInUse("LISTEN_ADDR", busy))

	c, lastCurl := startDev(t, env, "--reset")
	require.Contains(t, c.stdout.String(), "Deleted the database and the state of the fake Stripe in "+data+"\n")
	require.NotEqual(t, a.key, c.key)
	requirePaid(t, sendCurl(t, lastCurl))
	require.Equal(t, 1, strings.Count(listIntents(t, c.fakeStripe(), "sk_test_fake"), "\"payment_intent\""))

	dir := c.waitFor(&c.stderr, `private PostgreSQL is ready.*dir=(\S+)`)[1]
	pid, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	require.NoError(t, err)
	server, _, _ := strings.Cut(string(pid), "\n")
	require.NoError(t, exec.CommandContext(t.Context(), "kill", "-QUIT", server).Run())
	require.Equal(t, 1, c.wait())
	require.Contains(t, c.stderr.String(), "orders: the private PostgreSQL stopped\n")
	c.requireNoProcessLeft()
}

func (a *api) fakeStripe() string {
	a.t.Helper()
	return a.waitFor(&a.stdout, `Stripe +a fake.*(http://\S+)`)[1]
}

func TestDev_resetOtherDatabase(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, environ(t, "DATABASE_URL=postgres://127.0.0.1:1/orders"), "dev", "--reset")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "--reset deletes the private database only, and DATABASE_URL names another one\n")
}

func requireWebhooks(t *testing.T, a *api) {
	t.Helper()
	with := func(paymentMethod string) string { return strings.Replace(tea, "pm_card_visa", paymentMethod, 1) }
	const key = "an-approved-order-1"
	asked := a.mustOrder(key, with("pm_card_threeDSecure2Required"))
	require.Equal(t, http.StatusAccepted, asked.status, asked.body)
	var status struct {
		Action struct {
			ClientSecret    string `json:"client_secret"`
			PaymentIntentID string `json:"payment_intent_id"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(asked.body), &status))
	approved, err := http.PostForm(a.fakeStripe()+"/customer/"+status.Action.PaymentIntentID+"/approve", url.Values{"client_secret": {status.Action.ClientSecret}})
	require.NoError(t, err)
	require.NoError(t, approved.Body.Close())
	require.Equal(t, http.StatusNoContent, approved.StatusCode)
	get := func(path string) string {
		response := a.mustDo(http.MethodGet, path, "", nil)
		return response.body
	}
	eventually(t, func() bool { return strings.Contains(get("/v1/idempotency-keys/"+key), `"state":"finished"`) })
	a.waitFor(&a.stderr, `event_type=payment_intent\.succeeded`)

	paid := a.mustOrder("an-order-to-refund-1", with("pm_card_pendingRefund"))
	id := requirePaid(t, paid)
	refund := a.mustDo(http.MethodPost, "/v1/orders/"+id+"/refunds", "{}", http.Header{"Idempotency-Key": {"a-pending-refund-1"}})
	require.Equal(t, http.StatusCreated, refund.status, refund.body)
	require.Contains(t, refund.body, `"status":"pending"`)
	a.waitFor(&a.stderr, `event_type=refund\.updated.*outcome=refund_synced|outcome=refund_synced.*event_type=refund\.updated`)
}

func TestDev_ownServices(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	stripe, provider := fakeStripe(t)
	mail := newMailServer(t, "")
	env := environ(t, "DATABASE_URL="+dbtest.URL(pool), "STRIPE_SECRET_KEY=rk_test_dev", "STRIPE_API_BASE="+provider,
		"SMTP_URL=smtp://"+mail.address, "LISTEN_ADDR=127.0.0.1:0")
	a, curl := startDev(t, env)
	require.NotContains(t, a.stdout.String(), "PostgreSQL  ")
	require.NotContains(t, a.stdout.String(), "a fake")
	require.Contains(t, a.stdout.String(), "\nStripe       "+provider+" (mode: test)\n")
	require.Contains(t, a.stdout.String(), "Shop         off: set SHOP_STRIPE_PUBLISHABLE_KEY")
	require.Contains(t, a.stdout.String(), "stripe listen --forward-to "+a.base+"/v1/webhooks/stripe\n")
	requirePaid(t, sendCurl(t, curl))
	require.Len(t, stripe.Charges(), 1)
	eventually(t, func() bool { return len(mail.received()) == 1 })
	a.stop()

	other := append(env[:len(env):len(env)], "DATABASE_URL="+dbtest.URL(dbtest.Empty(t)))
	b, _ := startDev(t, other)
	require.NotEqual(t, a.key, b.key)
	b.stop()
	c, _ := startDev(t, env)
	require.Equal(t, a.key, c.key)
	c.stop()
}

func TestDev_unreachableStripe(t *testing.T) {
	t.Parallel()
	a, _ := startDev(t, environ(t, "DATABASE_URL="+dbtest.URL(dbtest.Empty(t)), "STRIPE_SECRET_KEY=sk_test_dev", "STRIPE_API_BASE=http://127.0.0.1:1", "LISTEN_ADDR=127.0.0.1:0"))
	require.Contains(t, a.stdout.String(), "\nStripe       http://127.0.0.1:1 (mode: test)\n")
	eventually(t, func() bool { return a.ready() == http.StatusOK })
	a.stop()
}
