package main_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

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

func TestCompleter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.abandon("abandoned-order-001", "abandoned-order-002", "abandoned-order-003")
	f.exec("UPDATE idempotency_keys SET updated_at = now() WHERE idempotency_key = 'abandoned-order-003'")
	rejecting := f.rejectConfirms()
	stderr := programtest.Fail(t, f.environ, "completer")
	rejecting.Release()
	require.Contains(t, stderr, `msg="completer pass" completed=0 skipped=0 requires_action=0 failed=2`+"\n")
	require.Contains(t, stderr, "orders: abandoned keys not completed: 2, which will be tried again (orders keys list)\n")

	f.exec("UPDATE idempotency_keys SET updated_at = updated_at - interval '10 minutes' WHERE idempotency_key <> 'abandoned-order-003'")
	_, stderr = programtest.Succeed(t, f.environ, "completer")
	require.Contains(t, stderr, `msg="completer pass" completed=2 skipped=0 requires_action=0 failed=0`+"\n")
	require.Len(t, f.stripe.Charges(), 2)
	require.Equal(t, 2, f.count("SELECT count(*) FROM orders WHERE status = 'paid'"))
	require.Equal(t, 2, f.staged())
}

// After a signal, the completer finishes the keys in progress and starts no other.
func TestCompleter_signal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const keys, atOnce = 10, 8
	for i := range keys {
		f.abandon(fmt.Sprintf("abandoned-order-%03d", i))
	}
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint, Times: stripetest.Always})
	c := programtest.Start(t, f.environ, "completer", "--every", "1h")
	<-held.Reached()
	c.Signal(syscall.SIGTERM)
	held.Release()
	require.Zero(t, c.Wait(), "%s", &c.Stderr)
	completed := len(f.stripe.Charges())
	require.LessOrEqual(t, completed, atOnce)
	require.Equal(t, keys-completed, f.count("SELECT count(*) FROM idempotency_keys WHERE runs = 1 AND locked_at IS NULL"))
}

func TestReaper(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.createPaidOrder("ancient-order-001")
	f.exec("UPDATE idempotency_keys SET finished_at = now() - interval '73 hours'")
	f.abandon("ancient-order-002")
	f.exec("UPDATE idempotency_keys SET created_at = now() - interval '9 years'")
	f.createPaidOrder("recent-order-0001")
	stdout, _ := programtest.Succeed(t, f.quiet(), "reaper", "--dry-run")
	require.Equal(t, "finished keys older than 72h0m0s: 1; none was emptied\n", stdout)
	_, stderr := programtest.Succeed(t, f.with("STRIPE_SECRET_KEY="), "reaper")
	require.Contains(t, stderr, `msg="reaper pass" emptied=1`+"\n")
	require.Equal(t, 3, f.count("SELECT count(*) FROM idempotency_keys"))
	require.Equal(t, 1, f.count("SELECT count(*) FROM idempotency_keys WHERE expired_at IS NOT NULL"))
	require.Zero(t, f.count("SELECT count(*) FROM idempotency_keys WHERE idempotency_key = 'ancient-order-001'"))
	require.Equal(t, 3, f.count("SELECT count(*) FROM orders"))
}

func TestJobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	orders := []string{f.createPaidOrder("receipt-order-011"), f.createPaidOrder("receipt-order-012"), f.createPaidOrder("receipt-order-013")}
	f.exec("UPDATE staged_jobs SET failed_at = now(), attempt = 1, last_error = 'no mailbox [removed] 550 5.1.1'")
	env := f.with("STRIPE_SECRET_KEY=", "STRIPE_API_BASE=", "LOG_LEVEL=error")

	stdout, _ := programtest.Succeed(t, env, "jobs", "list")
	jobs := make([]string, len(orders))
	for i, order := range orders {
		line := regexp.MustCompile(`(?m)^([0-9a-f-]{36})  receipt  ` + f.account().String() + `  \{"order_id": "` + order + `"\}  1  +20.{17}  20.{17}  no mailbox \[removed\] 550 5\.1\.1$`).FindStringSubmatch(stdout)
		require.NotNil(t, line, stdout)
		jobs[i] = line[1]
	}
	hopeless := jobs[2]

	stdout, _ = programtest.Succeed(t, env, "jobs", "retry", jobs[0], "--by", "grace", "--reason", "the address exists now")
	require.Equal(t, "The worker tries again, now: 1\n", stdout)
	stderr := programtest.Fail(t, env, "jobs", "retry", jobs[0], "--reason", "once more")
	require.Equal(t, "orders: there is no failed job of this id (orders jobs list), and a discrepancy ends with jobs delete\n", stderr)
	stdout, _ = programtest.Succeed(t, env, "jobs", "delete", hopeless, "--by", "grace", "--reason", "there is no such address")
	require.Equal(t, "Job "+hopeless+" is done with, and is not listed any more.\n", stdout)
	for _, id := range []string{hopeless, orders[1]} { // only by the id of a job
		stderr = programtest.Fail(t, env, "jobs", "delete", id, "--reason", "once more")
		require.Equal(t, "orders: there is no failed job of this id (orders jobs list), and a discrepancy ends with jobs delete\n", stderr)
	}
	stdout, _ = programtest.Succeed(t, env, "jobs", "retry", "all", "--reason", "the mail server is repaired")
	require.Equal(t, "The worker tries again, now: 1\n", stdout)

	programtest.Succeed(t, f.with("SMTP_URL=smtp://"+programtest.NewMailServer(t, "").Address), "worker", "--once")
	history := f.keys("show", "receipt-order-011")
	require.Regexp(t, `(?m)^20.{17} +receipt\.retry \{"by": ?"grace", "reason": ?"the address exists now"\}$`, history)
	require.Regexp(t, `(?m)^20.{17} +receipt\.done \{"attempt": ?1\}$`, history)
	require.Regexp(t, `(?m)^20.{17} +receipt\.delete \{"by": ?"grace", "reason": ?"there is no such address"\}$`, f.keys("show", "receipt-order-013"))
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

	f.exec(`INSERT INTO staged_jobs (account_id, id, kind, args, failed_at, last_error)
SELECT account_id, id, 'receipt', jsonb_build_object('order_id', id), now(), 'no such mailbox' FROM orders`)
	correct(statements[0][1], "ida@example.com", id)
	programtest.Succeed(t, f.quiet(), "jobs", "retry", id, "--reason", "the address was wrong")
	programtest.Succeed(t, environ, "worker", "--once")
	received := mail.Received()
	require.Len(t, received, 3)
	for i, to := range []string{"ada", "grace", "ida"} {
		require.Contains(t, received[i], "To: <"+to+"@example.com>")
	}
}
