package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
)

func (f *fixture) createPaidOrder(idempotencyKey string) string {
	f.t.Helper()
	return programtest.RequirePaid(f.t, f.shared().MustOrder(idempotencyKey, programtest.Tea))
}

func (f *fixture) staged() int {
	f.t.Helper()
	return f.count("SELECT count(*) FROM staged_jobs")
}

func TestWorker_once(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.createPaidOrder("receipt-order-001")
	stderr := programtest.Fail(t, f.with("SMTP_URL=smtp://127.0.0.1:1"), "worker", "--once")
	require.Contains(t, stderr, "orders: receipts not done: 1 to be retried, 0 failed, 0 lost\n")
	f.exec("UPDATE staged_jobs SET run_at = now()") // instead of a wait for the backoff
	mail := programtest.NewMailServer(t, "a password")
	env := f.with("SMTP_URL=smtp://tester:a%20password@" + mail.Address)

	stdout, _ := programtest.Succeed(t, env, "worker", "--once")
	require.Empty(t, stdout)
	require.Len(t, mail.Received(), 1)
	require.Contains(t, mail.Received()[0], id)
	require.Contains(t, mail.Received()[0], "ada@example.com")
	require.Zero(t, f.staged())

	programtest.Succeed(t, env, "worker", "--once")
	require.Len(t, mail.Received(), 1, "nothing is sent twice")
}

// Without a mail server, receipts wait, and the events are sent.
func TestWorker_noMailServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop := newEventShop(t)
	without := f.environ
	f.environ = f.with("EVENTS_URL="+shop.URL+"/events", "EVENTS_SECRET="+firstSecret)
	f.createPaidOrder("receipt-order-004")
	_, stderr := programtest.Succeed(t, f.environ, "worker", "--once")
	f.environ = without
	require.Contains(t, stderr, `level=WARN msg="SMTP_URL is not set, so this worker sends no receipts`)
	require.Len(t, shop.received(), 1)
	require.Equal(t, 1, f.staged())
}
