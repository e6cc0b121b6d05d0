package main_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

// startDev starts orders dev, waits until it is ready, and returns the curl line that
// it prints.
func startDev(t *testing.T, environ []string) (*api, string) {
	t.Helper()
	p := start(t, environ, "dev")
	p.waitFor(&p.stdout, "^orders dev: ")
	p.waitFor(&p.stdout, "Send the same line again")
	p.waitFor(&p.stderr, "listening")
	a := &api{process: p}
	a.base = p.waitFor(&p.stdout, `Orders API +(http://\S+)`)[1]
	a.key = p.waitFor(&p.stdout, `API key +(ok_\S+)`)[1]
	return a, p.waitFor(&p.stdout, `(?s)Create an order:\s+(curl .*?)\n\n`)[1]
}

// sendCurl sends the request of a curl command line, which a shell parses.
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
	response, err := a.do(t.Context(), http.MethodPost, "", body, header)
	require.NoError(t, err)
	return response
}

func TestDev(t *testing.T) {
	t.Parallel()
	env := environ(t, "LISTEN_ADDR=127.0.0.1:0")
	a, curl := startDev(t, env)
	requireShown(t, "README.md", "make run", a.stdout.String())
	first := sendCurl(t, curl)
	id := requirePaid(t, first)
	again := sendCurl(t, curl)
	require.Equal(t, first.body, again.body)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))

	// The stand-in has a page, and the receipt is in the folder that the log names.
	page := a.waitFor(&a.stdout, `Stripe +a stand-in.*(http://\S+)`)[1]
	require.Equal(t, http.StatusOK, getAs(t, "localhost", page))
	require.Equal(t, http.StatusMisdirectedRequest, getAs(t, "evil.example", page))
	folder := a.waitFor(&a.stderr, `\.eml files.*folder=(\S+)`)[1]
	require.Contains(t, folder, value(env, "HOME"))
	eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(folder, "receipt-"+id+".eml"))
		return err == nil
	})

	t.Run("two at once", func(t *testing.T) {
		code, _, stderr := run(t, env, "dev")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "orders: another orders dev is running on this machine: stop it, "+
			"or set DATABASE_URL to another database\n")
	})
	a.stop()
	a.requireNoProcessLeft()
	stopping, stopped := strings.Index(a.stderr.String(), "msg=\"stopping"), strings.Index(a.stderr.String(), "msg=stopped")
	require.True(t, 0 < stopping && stopping < stopped)

	// The next start keeps the key and the data.
	b, nextCurl := startDev(t, env)
	require.Equal(t, a.key, b.key)
	read, err := b.do(t.Context(), http.MethodGet, "/v1/orders/"+id, "", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, read.status, read.body)
	require.NotEmpty(t, requirePaid(t, sendCurl(t, nextCurl)))

	// After kill -9, no subprocess is left.
	b.signal(syscall.SIGKILL)
	b.wait()
	b.requireNoProcessLeft()
}

// Services that the environment names are used and not started.
func TestDev_ownServices(t *testing.T) {
	t.Parallel()
	pool := dbtest.Empty(t)
	stripe, provider := standIn(t)
	mail := newMailServer(t, "")
	env := environ(t, "DATABASE_URL="+dbtest.URL(pool), "STRIPE_SECRET_KEY=rk_test_dev", "STRIPE_API_BASE="+provider,
		"SMTP_URL=smtp://"+mail.address, "LISTEN_ADDR=127.0.0.1:0")
	a, curl := startDev(t, env)
	require.NotContains(t, a.stdout.String(), "PostgreSQL  ")
	require.NotContains(t, a.stdout.String(), "a stand-in")
	requirePaid(t, sendCurl(t, curl))
	require.Len(t, stripe.Charges(), 1)
	eventually(t, func() bool { return len(mail.received()) == 1 })
	a.stop()

	// Each database has a key of its own, and dev finds both again.
	other := append(env[:len(env):len(env)], "DATABASE_URL="+dbtest.URL(dbtest.Empty(t)))
	b, _ := startDev(t, other)
	require.NotEqual(t, a.key, b.key)
	b.stop()
	c, _ := startDev(t, env)
	require.Equal(t, a.key, c.key)
	c.stop()
}

func TestDev_databaseStops(t *testing.T) {
	t.Parallel()
	a, _ := startDev(t, environ(t, "LISTEN_ADDR=127.0.0.1:0"))
	dir := a.waitFor(&a.stderr, `private PostgreSQL is ready.*dir=(\S+)`)[1]
	pid, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	require.NoError(t, err)
	server, _, _ := strings.Cut(string(pid), "\n")
	require.NoError(t, exec.CommandContext(t.Context(), "kill", "-QUIT", server).Run())
	require.Equal(t, 1, a.wait())
	require.Contains(t, a.stderr.String(), "orders: the private PostgreSQL stopped\n")
	a.requireNoProcessLeft()
}
