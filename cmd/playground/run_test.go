package main_test

import (
	"flag"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	playground "example.com/orders-api/cmd/playground"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
)

func startRun(t *testing.T, environ []string, flags ...string) (*programtest.API, string) {
	t.Helper()
	p := programtest.Start(t, environ, append([]string{"run"}, flags...)...)
	p.WaitFor(&p.Stdout, "^playground run: ")
	p.WaitFor(&p.Stdout, "Send the same line again")
	p.WaitFor(&p.Stderr, "listening")
	a := &programtest.API{Process: p}
	a.Base = p.WaitFor(&p.Stdout, `Orders API +(http://\S+)`)[1]
	a.Key = p.WaitFor(&p.Stdout, `API key +(ok_\S+)`)[1]
	return a, p.WaitFor(&p.Stdout, `(?s)Create an order:\s+(curl .*?)\n\n`)[1]
}

func sendCurl(t *testing.T, line string) programtest.Response {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "curl() { printf '%s\\0' \"$@\"; }\n"+line).Output()
	require.NoError(t, err)
	args := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	a := &programtest.API{Process: &programtest.Process{T: t}}
	header := http.Header{}
	var body string
	for i, arg := range args {
		switch {
		case strings.HasPrefix(arg, "http://"):
			a.Base = arg
		case i > 0 && args[i-1] == "-H":
			name, value, _ := strings.Cut(arg, ": ")
			header.Set(name, value)
		case i > 0 && args[i-1] == "-d":
			body = arg
		}
	}
	return a.MustDo(http.MethodPost, "", body, header)
}

// One test covers all that needs a private PostgreSQL, because each start of one takes a second.
func TestRun(t *testing.T) {
	t.Parallel()
	env := programtest.Environ(t, "LISTEN_ADDR=127.0.0.1:0")
	a, curl := startRun(t, env)
	first := sendCurl(t, curl)
	id := programtest.RequirePaid(t, first)
	again := sendCurl(t, curl)
	require.Equal(t, first.Body, again.Body)
	require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))

	page := fakeStripeOf(a)
	status, _ := programtest.GetAs(t, "localhost", page)
	require.Equal(t, http.StatusOK, status)
	status, _ = programtest.GetAs(t, "evil.example", page)
	require.Equal(t, http.StatusMisdirectedRequest, status)
	folder := a.WaitFor(&a.Stderr, `\.eml files.*folder=(\S+)`)[1]
	require.Contains(t, folder, programtest.Value(env, "HOME"))
	require.Contains(t, a.Stdout.String(), "Data         "+filepath.Dir(folder)+" ", "each clone has its receipts")
	programtest.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(folder, "receipt-"+id+".eml"))
		return err == nil
	})
	a.WaitFor(&a.Stderr, `shop: event.* type=order\.paid order=`+id)

	data := a.WaitFor(&a.Stdout, `Data +(\S+) `)[1]
	require.Contains(t, data, programtest.Value(env, "HOME"))
	for _, command := range []string{"run", "run --reset"} {
		code, _, stderr := programtest.Run(t, env, strings.Fields(command)...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "playground: another playground run uses the data in "+data+": stop it, "+
			"or set DATABASE_URL to another database\n")
	}

	// After SIGKILL, the next start has the same API key and data, and the fake still has all payments.
	a.Signal(syscall.SIGKILL)
	a.Wait()
	a.RequireNoProcessLeft()
	b, nextCurl := startRun(t, env)
	require.Equal(t, a.Key, b.Key)
	programtest.RequirePaid(t, sendCurl(t, nextCurl))
	require.Equal(t, 2, strings.Count(programtest.ListIntents(t, fakeStripeOf(b), "sk_test_fake"), "\"payment_intent\""))
	b.Stop()
	b.RequireNoProcessLeft()
	stopping, stopped := strings.Index(b.Stderr.String(), "msg=\"stopping"), strings.Index(b.Stderr.String(), "msg=stopped")
	require.True(t, 0 < stopping && stopping < stopped)

	requests := make(chan *http.Request, 100)
	bodies := make(chan []byte, 100)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- r
		bodies <- body
	}))
	defer endpoint.Close()
	c, lastCurl := startRun(t, append(slices.Clone(env), "EVENTS_URL="+endpoint.URL), "--reset")
	require.Contains(t, c.Stdout.String(), "Deleted the database and the state of the fake Stripe in "+data+"\n")
	require.NotEqual(t, a.Key, c.Key)
	last := programtest.RequirePaid(t, sendCurl(t, lastCurl))
	secret := c.WaitFor(&c.Stdout, "Events +to "+endpoint.URL+` +signing secret: (whsec_\S+)`)[1]
	event, err := client.VerifyEvent([]string{secret}, (<-requests).Header, <-bodies, time.Now())
	require.NoError(t, err)
	require.Equal(t, "order.paid "+last, event.Type+" "+event.Data.OrderID)
	require.Equal(t, 1, strings.Count(programtest.ListIntents(t, fakeStripeOf(c), "sk_test_fake"), "\"payment_intent\""))

	dir := c.WaitFor(&c.Stderr, `private PostgreSQL is ready.*dir=(\S+)`)[1]
	pid, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	require.NoError(t, err)
	server, _, _ := strings.Cut(string(pid), "\n")
	require.NoError(t, exec.CommandContext(t.Context(), "kill", "-QUIT", server).Run())
	require.Equal(t, 1, c.Wait())
	require.Contains(t, c.Stderr.String(), "playground: the private PostgreSQL stopped\n")
	c.RequireNoProcessLeft()
}

func fakeStripeOf(a *programtest.API) string {
	a.T.Helper()
	return a.WaitFor(&a.Stdout, `Stripe +a fake.*(http://\S+)`)[1]
}

// playground run serves the example shop with the Stripe.js of the fake, or with Stripe's own if
// the environment has both test keys.
func TestRun_shop(t *testing.T) {
	t.Parallel()
	_, provider := programtest.FakeStripe(t)
	own := "STRIPE_SECRET_KEY=sk_test_dev STRIPE_API_BASE=" + provider
	for name, test := range map[string]struct {
		settings string
		script   string // "" if there is no shop
	}{
		"fake":     {"", `src="http://127.0.0.1:`},
		"Stripe":   {own + " SHOP_STRIPE_PUBLISHABLE_KEY=pk_test_1", `src="https://js.stripe.com/v3/"`},
		"live key": {own + " SHOP_STRIPE_PUBLISHABLE_KEY=pk_live_1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := startRun(t, programtest.Environ(t, append(strings.Fields(test.settings), "DATABASE_URL="+dbtest.URL(dbtest.Empty(t)), "LISTEN_ADDR=127.0.0.1:0")...))
			defer a.Stop()
			if test.script == "" {
				a.WaitFor(&a.Stdout, "Shop         off: set SHOP_STRIPE_PUBLISHABLE_KEY")
				status, _ := programtest.Get(t, a.Base+"/shop")
				require.Equal(t, http.StatusNotFound, status)
				return
			}
			shop := a.WaitFor(&a.Stdout, `Shop         (http://\S+)`)[1]
			jar, err := cookiejar.New(nil)
			require.NoError(t, err)
			browser := http.Client{Timeout: programtest.WaitTimeout, Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
			response, err := browser.PostForm(shop+"/basket", url.Values{"tea": {"1"}})
			require.NoError(t, err)
			defer response.Body.Close()
			page, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Contains(t, string(page), test.script)
		})
	}
}

func TestMain(m *testing.M) {
	// The tests mostly wait for processes. The flag -parallel overrides this.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	programtest.Main(m, playground.Main)
}
