package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/programtest"
)

const signingKey = "EVENTS_SIGNING_KEY=the signing key of the program's tests"

func (f *fixture) endpoint(environ []string, command string, args ...string) string {
	f.t.Helper()
	stdout, _ := programtest.Succeed(f.t, environ, append([]string{"accounts", "endpoint", command, "--account", f.account().String()}, args...)...)
	return stdout
}

func lastLine(output string) string {
	lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	return lines[len(lines)-1]
}

// eventShop is a shop that verifies events with a secret.
type eventShop struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	events []client.Event
}

func newEventShop(t *testing.T, secret *string) *eventShop {
	t.Helper()
	s := &eventShop{status: http.StatusNoContent}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		event, err := client.VerifyEvent([]string{*secret}, r.Header, body, time.Now())
		if err != nil {
			t.Error(err)
		}
		s.events = append(s.events, event)
		w.WriteHeader(s.status)
	}))
	t.Cleanup(s.Close)
	return s
}

// From the command that sets the endpoint to the verified event.
func TestEndpoint(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	env := f.with(signingKey, "SMTP_URL=smtp://"+programtest.NewMailServer(t, "").Address, "LOG_LEVEL=warn")
	var secret string
	shop := newEventShop(t, &secret)
	set := f.endpoint(env, "set", "--url", shop.URL+"/events")
	require.Regexp(t, `^Endpoint [0-9a-f-]{36} of account `+f.account().String()+`: `+shop.URL+`/events\. The secret that signs its events:\nwhsec_[\w+/]{43}=\n$`, set)
	secret = lastLine(set)
	_, warned := programtest.Succeed(t, f.with("SMTP_URL=smtp://"+programtest.NewMailServer(t, "").Address, "LOG_LEVEL=warn"), "worker", "--once")
	require.Regexp(t, `^[^\n]+ level=WARN msg="EVENTS_SIGNING_KEY is not set, so this worker sends no events [^\n]+ endpoints=1 error=<nil>\n$`, warned)
	order := f.createPaidOrder("an-order-with-an-event")

	programtest.Succeed(t, env, "worker", "--once")
	require.Len(t, shop.events, 1)
	require.Equal(t, "order.paid", shop.events[0].Type)
	require.Equal(t, order, shop.events[0].Data.OrderID)
	require.Regexp(t, `(?m)^20.{17} +event\.sent \{"attempt": ?1\}$`, f.keys("show", order))
	require.Regexp(t, `^ACCOUNT +ENDPOINT +URL +CREATED +SECRET +STATE +LAST ERROR\n`+f.account().String()+`  [0-9a-f-]{36}  `+shop.URL+`/events  20.{17}  1 +enabled  -\n$`, f.endpoint(env, "show"))

	require.Equal(t, secret, lastLine(f.endpoint(env, "set", "--url", shop.URL)), "another URL keeps the secret")
	rotated := lastLine(f.endpoint(env, "rotate"))
	require.NotEqual(t, secret, rotated)
	f.createPaidOrder("an-order-for-the-old-secret")
	programtest.Succeed(t, env, "worker", "--once")
	secret = rotated
	f.createPaidOrder("an-order-for-the-new-secret")
	programtest.Succeed(t, env, "worker", "--once")
	require.Len(t, shop.events, 3)

	shop.status = http.StatusInternalServerError
	f.createPaidOrder("an-order-whose-event-fails")
	stderr := programtest.Fail(t, env, "worker", "--once")
	require.Equal(t, "orders: events not sent: 1 to be retried, 0 failed, 0 lost\n", stderr)
	require.Regexp(t, `  fails since 20.{17}, 1 times in a row  the endpoint responded with status 500\n$`, f.endpoint(env, "show"))
	all, _ := programtest.Succeed(t, env, "accounts", "endpoint", "show")
	require.Equal(t, f.endpoint(env, "show"), all)

	shop.status = http.StatusGone
	f.exec("UPDATE staged_jobs SET run_at = now()")
	f.exec("UPDATE event_endpoints SET run_at = now()")
	programtest.Fail(t, env, "worker", "--once")
	id := strings.Fields(set)[1]
	list, _ := programtest.Succeed(t, env, "jobs", "list")
	require.Regexp(t, `(?m)^`+id+`  endpoint  `+f.account().String()+`  -  +2 +\d+s +20.{17}  the endpoint responded with status 410$`, list)
	require.Regexp(t, `  disabled since 20.{17}  the endpoint responded with status 410\n$`, f.endpoint(env, "show"))
	shop.status = http.StatusOK
	f.exec("UPDATE staged_jobs SET run_at = now()")
	programtest.Succeed(t, env, "worker", "--once")
	require.Len(t, shop.events, 5, "not while it is disabled")
	retried, _ := programtest.Succeed(t, env, "jobs", "retry", id, "--by", "grace", "--reason", "the shop is back")
	require.Equal(t, "The worker tries again, now: 1\n", retried)
	require.Equal(t, 1, f.count("SELECT count(*) FROM audit_records WHERE action = 'endpoint.retry' AND resource_type = 'endpoint' AND resource_id = $1", id))
	programtest.Succeed(t, env, "worker", "--once")
	require.Len(t, shop.events, 6)

	f.createPaidOrder("an-order-whose-event-is-removed")
	require.Equal(t, "The account has no endpoint any more.\n", f.endpoint(env, "remove"))
	require.Zero(t, f.count("SELECT count(*) FROM staged_jobs WHERE kind = 'event'"), "its events are deleted")
	f.createPaidOrder("an-order-without-an-event")
	require.Zero(t, f.count("SELECT count(*) FROM staged_jobs WHERE kind = 'event'"))
}

func TestEndpoint_invalid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	account := []string{"--account", f.account().String()}
	for line, want := range map[string]string{
		"show":                                  "orders: the account has no endpoint\n",
		"remove":                                "orders: the account has no endpoint\n",
		"rotate":                                "orders: the account has no endpoint\n",
		"set --url http://shop.example/events":  "orders: an endpoint's URL is https://",
		"set --url ftp://127.0.0.1/events":      "orders: an endpoint's URL is https://",
		"set --url https://u:canary@shop.de/":   "orders: an endpoint's URL is https://",
		"set --url https:///events":             "orders: an endpoint's URL is https://",
		"set --url https://shop.example/#shop1": "orders: an endpoint's URL is https://",
	} {
		stderr := programtest.Fail(t, append(f.quiet(), signingKey), append(append([]string{"accounts", "endpoint"}, strings.Fields(line)...), account...)...)
		require.True(t, strings.HasPrefix(stderr, want), "%s: %s", line, stderr)
		require.NotContains(t, stderr, "canary")
	}
	const set, url = "accounts endpoint set --url", " https://shop.example/events --account "
	stderr := programtest.Fail(t, append(f.quiet(), signingKey), strings.Fields(set+url+uuid.NewString())...)
	require.Equal(t, "orders: there is no such account\n", stderr)
	stderr = programtest.Fail(t, f.quiet(), strings.Fields(set+url+account[1])...)
	require.Contains(t, stderr, "orders: EVENTS_SIGNING_KEY: not set; ")
}
