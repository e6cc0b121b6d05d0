package main_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// sell makes a paid order and returns its id.
func (s *shop) sell(idempotencyKey string) string {
	s.t.Helper()
	a := s.serve(s.environ, "--shutdown-delay", "0")
	answer, err := a.order(idempotencyKey, tea)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusCreated, answer.status)
	a.stop()
	return requirePaid(s.t, answer)
}

// staged counts the receipts that are not sent.
func (s *shop) staged() int {
	s.t.Helper()
	var n int
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), "SELECT count(*) FROM staged_jobs").Scan(&n))
	return n
}

func TestWorker_onePass(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.sell("receipt-order-001")
	mail := newMailServer(t, "a password")
	env := s.with("SMTP_URL=smtp://shop:a%20password@" + mail.address)

	code, stdout, stderr := run(t, env, "worker", "--once")
	require.Zero(t, code, stderr)
	require.Empty(t, stdout)
	require.Len(t, mail.received(), 1)
	require.Contains(t, mail.received()[0], id)
	require.Contains(t, mail.received()[0], "ada@example.com")
	require.Zero(t, s.staged())

	code, _, stderr = run(t, env, "worker", "--once")
	require.Zero(t, code, stderr)
	require.Len(t, mail.received(), 1, "nothing is sent twice")
}

func TestWorker_onePassWithoutAMailServer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.sell("receipt-order-002")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close()) // nobody is there now

	code, _, stderr := run(t, s.with("SMTP_URL=smtp://"+listener.Addr().String()), "worker", "--once")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "orders: receipts not sent: 1 to be retried, 0 failed, 0 lost\n")
	require.Equal(t, 1, s.staged())
}

func TestWorker_runsUntilTold(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	mail := newMailServer(t, "")
	mail.putOff(1)
	w := start(t, s.with("SMTP_URL=smtp://"+mail.address, "LOG_LEVEL=debug"), "worker", "--every", "50ms")
	w.waitFor(&w.stderr, "receipts go to the mail server")
	id := s.sell("receipt-order-003")
	w.waitFor(&w.stderr, "receipt failed")
	eventually(t, func() bool { return len(mail.received()) == 1 }) // a second later
	require.Contains(t, mail.received()[0], id)
	eventually(t, func() bool { return s.staged() == 0 })
	w.stop()
	require.Contains(t, w.stderr.String(), "msg=stopped")
	require.Len(t, mail.received(), 1)
}

func TestWorker_writesFilesWithoutAMailServer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.sell("receipt-order-004")
	w := start(t, s.environ, "worker", "--once")
	folder := w.waitFor(&w.stderr, `become \.eml files.*folder=(\S+)`)[1]
	require.Zero(t, w.wait())
	require.True(t, filepath.IsAbs(folder))
	require.Contains(t, folder, value(s.environ, "HOME"))
	mail, err := os.ReadFile(filepath.Join(folder, "receipt-"+id+".eml"))
	require.NoError(t, err)
	require.Contains(t, string(mail), "ada@example.com")
	require.Contains(t, string(mail), "25.00")
	require.Zero(t, s.staged())
}
