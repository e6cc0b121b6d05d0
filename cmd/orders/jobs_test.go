package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/payments/stripetest"
)

// abandon creates orders whose confirms were rejected. Their last runs were ten minutes ago.
func (f *fixture) abandon(idempotencyKeys ...string) {
	f.t.Helper()
	f.abandonAt(f.shared(), idempotencyKeys...)
}

func (f *fixture) abandonAt(a *programtest.API, idempotencyKeys ...string) {
	f.t.Helper()
	rejecting := f.rejectConfirms()
	for _, key := range idempotencyKeys {
		response := a.MustOrder(key, programtest.Tea)
		require.Equal(f.t, http.StatusServiceUnavailable, response.Status)
	}
	rejecting.Release()
	f.exec("UPDATE idempotency_keys SET updated_at = updated_at - interval '10 minutes' WHERE recovery_point <> 'finished'")
}

// rejectConfirms makes the provider reject every confirm with 401, which is not retried.
func (f *fixture) rejectConfirms() *stripetest.Injection {
	return f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: confirmEndpoint, Times: stripetest.Always})
}

func (f *fixture) exec(statement string, arguments ...any) {
	f.t.Helper()
	_, err := f.pool.Exec(f.t.Context(), statement, arguments...)
	require.NoError(f.t, err)
}

func (f *fixture) count(query string, arguments ...any) int {
	f.t.Helper()
	var n int
	require.NoError(f.t, f.pool.QueryRow(f.t.Context(), query, arguments...).Scan(&n))
	return n
}

// The runbook's remedy for a wrong address sends the receipt of an order again, whether the first one failed or not.
func TestReceipt_wrongAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	page, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## A receipt with a wrong address\n")
	statements := regexp.MustCompile(`psql "\$PSQL_URL" -c "(.+)"`).FindAllStringSubmatch(section, 2)
	correct := func(statement string, values ...string) {
		for _, value := range values {
			statement = strings.Replace(statement, "…", value, 1)
		}
		f.exec(statement)
	}
	id := f.createPaidOrder("an-order-with-a-wrong-address")
	mail := programtest.NewMailServer(t, "")
	environ := f.with("SMTP_URL=smtp://" + mail.Address)
	programtest.Succeed(t, environ, "worker", "--once")
	correct(statements[0][1], "grace@example.com", id)
	correct(statements[1][1], id)
	programtest.Succeed(t, environ, "worker", "--once")

	const failed = `
INSERT INTO staged_jobs (account_id, id, kind, args, failed_at, last_error)
SELECT account_id, id, 'receipt', jsonb_build_object('order_id', id), now(), 'no such mailbox' FROM orders`
	f.exec(failed)
	correct(statements[0][1], "ida@example.com", id)
	programtest.Succeed(t, f.quiet(), "jobs", "retry", id, "--reason", "the address was wrong")
	programtest.Succeed(t, environ, "worker", "--once")
	received := mail.Received()
	require.Len(t, received, 3)
	for i, to := range []string{"ada", "grace", "ida"} {
		require.Contains(t, received[i], "To: <"+to+"@example.com>")
	}

	f.exec(failed)
	programtest.Succeed(t, f.quiet(), "jobs", "delete", id, "--by", "grace", "--reason", "there is no such address")
	stderr := programtest.Fail(t, f.quiet(), "jobs", "delete", id, "--reason", "once more")
	require.Equal(t, "orders: there is no failed job of this id (orders jobs list), and a discrepancy ends with jobs delete\n", stderr)
	history := f.keys("show", id)
	require.Regexp(t, `(?m)^20.{17} +receipt\.retry \{"by": ?".+", "reason": ?"the address was wrong"\}$`, history)
	require.Regexp(t, `(?m)^20.{17} +receipt\.delete \{"by": ?"grace", "reason": ?"there is no such address"\}$`, history)
}

func (f *fixture) createPaidOrder(idempotencyKey string) string {
	f.t.Helper()
	return programtest.RequirePaid(f.t, f.shared().MustOrder(idempotencyKey, programtest.Tea))
}

func (f *fixture) staged() int {
	f.t.Helper()
	return f.count("SELECT count(*) FROM staged_jobs")
}

const eventSecret = "whsec_dGhlIGZpcnN0IHNlY3JldCBvZiB0aGVzZSB0ZXN0cw=="

// From the environment to the verified event. Without a mail server, receipts wait, and the events are sent.
func TestEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var status atomic.Int64 // of the shop's responses
	status.Store(http.StatusNoContent)
	events := make(chan client.Event, 10)
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		event, err := client.VerifyEvent([]string{eventSecret}, r.Header, body, time.Now())
		if err != nil {
			t.Error(err)
		}
		events <- event
		w.WriteHeader(int(status.Load()))
	}))
	defer shop.Close()
	f.environ = f.with("EVENTS_URL="+shop.URL+"/events", "EVENTS_SECRET="+eventSecret)
	env := f.with("SMTP_URL=smtp://"+programtest.NewMailServer(t, "").Address, "LOG_LEVEL=warn")
	order := f.createPaidOrder("an-order-with-an-event")
	_, stderr := programtest.Succeed(t, f.environ, "worker", "--once")
	require.Contains(t, stderr, `level=WARN msg="SMTP_URL is not set, so this worker sends no receipts`)
	require.Equal(t, 1, f.staged(), "the receipt waits")
	paid := <-events
	require.Equal(t, []string{"order.paid", order, f.account().String()}, []string{paid.Type, paid.Data.OrderID, paid.AccountID})
	require.Regexp(t, `(?m)^20.{17} +event\.done \{"attempt": ?1\}$`, f.keys("show", order))

	status.Store(http.StatusInternalServerError)
	f.createPaidOrder("an-order-whose-event-fails")
	stderr = programtest.Fail(t, env, "worker", "--once")
	require.Equal(t, "orders: events not done: 1 to be retried, 0 failed, 0 lost\n", stderr)
	failed := <-events
	f.exec("UPDATE staged_jobs SET run_at = now(), attempt = 299")
	programtest.Fail(t, env, "worker", "--once")
	list, _ := programtest.Succeed(t, env, "jobs", "list")
	require.Regexp(t, `(?m)^JOB .*\n[0-9a-f-]{36}  20.{17}  20.{17}  300       event            the endpoint responded with status 500\n    account `+f.account().String()+` \{"type": "order\.paid", "order_id": "[0-9a-f-]{36}"\}$`, list)
	status.Store(http.StatusOK)
	retried, _ := programtest.Succeed(t, env, "jobs", "retry", "all", "--reason", "the shop is back")
	require.Equal(t, "The worker tries again, now: 1\n", retried)
	programtest.Succeed(t, env, "worker", "--once")
	require.Len(t, events, 2)
	require.Equal(t, []string{failed.ID, failed.ID}, []string{(<-events).ID, (<-events).ID})
	require.Zero(t, f.count("SELECT count(*) FROM staged_jobs"))
}
