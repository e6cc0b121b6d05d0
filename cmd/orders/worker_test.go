package main_test

import (
	"os"
	"path/filepath"
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

func TestWorker_repeating(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mail := programtest.NewMailServer(t, "")
	mail.RejectNext(1)
	w := programtest.Start(t, f.with("SMTP_URL=smtp://"+mail.Address, "LOG_LEVEL=debug"), "worker", "--every", "50ms")
	w.WaitFor(&w.Stderr, "receipts are sent by mail")
	id := f.createPaidOrder("receipt-order-003")
	w.WaitFor(&w.Stderr, "receipt failed")
	programtest.Eventually(t, func() bool { return len(mail.Received()) == 1 })
	require.Contains(t, mail.Received()[0], id)
	programtest.Eventually(t, func() bool { return f.staged() == 0 })
	w.Stop()
	require.Len(t, mail.Received(), 1)
}

// A receipt in a folder that no operator chose is lost with its pod (R15, staged receipt).
func TestWorker_noDestination(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	programtest.RequireStartupError(t, f.environ, "worker --once", "orders: wrong configuration:\n  SMTP_URL: not set; ", "RECEIPTS_DIR")
	programtest.RequireStartupError(t, f.with("RECEIPTS_DIR=/proc"), "worker --once", "orders: RECEIPTS_DIR: receipts: ") // not even root can write there
}

func TestWorker_files(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.createPaidOrder("receipt-order-004")
	folder := filepath.Join(t.TempDir(), "receipts")
	_, stderr := programtest.Succeed(t, f.with("RECEIPTS_DIR="+folder), "worker", "--once")
	require.Contains(t, stderr, "folder="+folder)
	mail, err := os.ReadFile(filepath.Join(folder, "receipt-"+id+".eml"))
	require.NoError(t, err)
	require.Contains(t, string(mail), "ada@example.com")
	require.Contains(t, string(mail), "25.00")
	require.Zero(t, f.staged())
}
